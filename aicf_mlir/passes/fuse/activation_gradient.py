"""The gradient of an activation becomes the epilogue of the gemm that produces its dy.

Not where dy itself has another use: the fused launch does not produce it.
"""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.views import erase_dead_views, used_once, view_chain, viewed_as

GRADIENTS: dict[type[KernelOp], str] = {
    kernel.ReluBwdOp: "relu",
    kernel.GeluBwdOp: "gelu",
    kernel.GeluTanhBwdOp: "gelu_tanh",
    kernel.SiluBwdOp: "silu",
    kernel.TanhBwdOp: "tanh",
    kernel.SigmoidBwdOp: "sigmoid",
}


class FuseActivationGradient(RewritePattern):
    """act_bwd(gemm(a, b), saved) -> gemm_epilogue(a, b, saved) {act_grad}, also through reshapes of dy."""

    def __init__(self, library: Library):
        self.library = library

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, KernelOp) or (activation := GRADIENTS.get(type(op))) is None:
            return
        dy, saved = op.operands
        chain = view_chain(dy)
        gemm = chain[-1].owner
        if not isinstance(gemm, kernel.GemmOp) or not used_once(chain):
            return
        before, saved_rows = viewed_as(saved, gemm.results[0].type)
        attrs = {**gemm.attrs, "act_grad": activation}
        fused = kernel.GemmEpilogueOp.launch(
            {**gemm.ins, "saved": saved_rows}, {"out": gemm.results[0].type}, **attrs
        )
        if not self.library.keeps(gemm, fused):
            for view in reversed(before):
                view.erase()
            return
        fused.location = fused_location(op, gemm)
        after, result = viewed_as(fused.results[0], op.results[0].type)
        rewriter.replace(op, [*before, fused, *after], [result])
        erase_dead_views(chain, rewriter)
        erase_dead_views(view_chain(saved), rewriter)
        rewriter.erase(gemm)
