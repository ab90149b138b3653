"""The gradient of a bias becomes a second result of the gemm that makes the gradient of the weight."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.missed import missed_bias_gradient
from aicf_mlir.passes.fuse.views import viewed_as


class FuseBiasGradient(RewritePattern):
    """reduce_sum(dy) over its rows and gemm(dy, x) {trans_a} -> gemm_epilogue(dy, x) -> out, bias_grad {trans_a}."""

    def __init__(self, function: FuncOp, library: Library, says: bool):
        """`says`: with remarks on sums that stay."""
        self.library, self.says = library, says
        self.order = {op: position for position, op in enumerate(function.body.block.ops)}

    def defined(self, value: SSAValue) -> int:
        """The place at which `value` is defined; arguments come before everything."""
        return self.order[value.owner] if isinstance(value.owner, Operation) else -1

    def find_product(self, dy: SSAValue) -> KernelOp | None:
        """The first gemm that reads dy transposed as its left operand."""
        products = [
            use.operation
            for use in dy.uses
            if isinstance(use.operation, kernel.GemmOp)
            and use.index == 0
            and use.operation.attrs.get("trans_a") is True
        ]
        return min(products, key=lambda op: self.order[op], default=None)

    def find_place(self, reduction: KernelOp, gemm: KernelOp) -> Operation | None:
        """The op before which both operands are defined and no result is used yet."""
        if self.order[gemm] < self.order[reduction]:
            return gemm
        if all(self.defined(operand) < self.order[reduction] for operand in gemm.operands):
            return reduction
        if all(self.order[use.operation] > self.order[gemm] for use in reduction.results[0].uses):
            return gemm
        return None

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, kernel.ReduceSumOp):
            return
        (dy,) = op.operands
        gemm = self.find_product(dy)
        plain = len(shape_of(dy)) == 2 and op.attrs["dims"] == [0] and op.attrs.get("divisor", 1.0) == 1.0
        if not plain or gemm is None or (place := self.find_place(op, gemm)) is None:
            if self.says:
                missed_bias_gradient(op, gemm)
            return
        sums = TensorType(element_type(dy), shape_of(dy)[1:])
        results = {"out": gemm.results[0].type, "bias_grad": sums}
        fused = kernel.GemmEpilogueOp.launch(gemm.ins, results, **gemm.attrs)
        if not self.library.keeps(gemm, fused):
            return
        fused.location = fused_location(gemm, op)
        views, total = viewed_as(fused.results[1], op.results[0].type)
        for new in (fused, *views):
            self.order[new] = self.order[place]
        rewriter.insert([fused, *views], InsertPoint.before(place))
        rewriter.replace(op, [], [total])
        rewriter.replace(gemm, [], [fused.results[0]])
