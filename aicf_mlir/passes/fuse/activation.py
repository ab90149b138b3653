"""A product, then an activation: the activation becomes part of the epilogue.

The value before the activation is kept as the second result where anything else uses it, as the backward pass
of gelu and silu does.
"""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir import registry
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.product import attributes_of_product
from aicf_mlir.passes.fuse.views import erase_dead_views, used_once, view_chain, viewed_as

ACTIVATIONS: tuple[type[KernelOp], ...] = (
    kernel.ReluOp,
    kernel.GeluOp,
    kernel.GeluTanhOp,
    kernel.SiluOp,
    kernel.TanhOp,
    kernel.SigmoidOp,
)


def open_product(value: SSAValue) -> KernelOp | None:
    """The launch whose product `value` is, unless its epilogue has more than a bias already."""
    match value.owner:
        case kernel.GemmOp() as op:
            return op
        case kernel.GemmEpilogueOp() as op if (
            op.attrs == attributes_of_product(op) and not op.outs["bias_grad"]
        ):
            return op
        case _:
            return None


def activate(
    op: Operation, product: KernelOp, fused: KernelOp, chain: list[SSAValue], rewriter: PatternRewriter
) -> None:
    """Put `fused`, and its second result for the value before the activation, in the place of `product` and the activation `op`
    that reads it along `chain`.
    """
    fused.location = fused_location(product, op)
    fused.results[0].name_hint = op.results[0].name_hint
    # All that the product reads is defined before it, and all that uses it comes after.
    rewriter.insert(fused, InsertPoint.before(product))
    views, result = viewed_as(fused.results[0], op.results[0].type)
    rewriter.replace(op, views, [result])
    for before in fused.results[1:]:
        rewriter.replace_all_uses_with(chain[-1], before)
        before.name_hint = chain[-1].name_hint
    erase_dead_views(chain, rewriter)
    rewriter.erase(product)


class FuseRelu(RewritePattern):
    """relu(convolution(x, w)) -> convolution(x, w) {act = relu}, where nothing else reads the sums and one kernel does both."""

    def __init__(self, target: str):
        self.target = target

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, kernel.ReluOp):
            return
        chain = view_chain(op.operands[0])
        sums = chain[-1].owner
        if not isinstance(sums, kernel.ConvolutionOp) or not used_once(chain):
            return
        fused = kernel.ConvolutionOp.launch(
            sums.ins, {"y": sums.results[0].type}, **{**sums.attrs, "act": op.op_name}
        )
        if len({registry.select_kernel(each.use, self.target)[0] for each in (sums, fused)}) > 1:
            fused.erase()
            return
        activate(op, sums, fused, chain, rewriter)


class FuseActivation(RewritePattern):
    """act(gemm(a, b)) -> gemm_epilogue(a, b) {act}; the same with a bias."""

    def __init__(self, library: Library):
        self.library = library

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, ACTIVATIONS):
            return
        chain = view_chain(op.operands[0])
        if (product := open_product(chain[-1])) is None:
            return
        attrs = {**product.attrs, "act": op.op_name}
        type_ = product.results[0].type
        kept = not used_once(chain)
        results = {"out": type_, "pre": type_} if kept else {"out": type_}
        fused = kernel.GemmEpilogueOp.launch(product.ins, results, **attrs)
        if not self.library.keeps(product, fused):
            return
        activate(op, product, fused, chain, rewriter)
