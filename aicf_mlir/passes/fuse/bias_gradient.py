"""The gradient of a bias becomes a second result of the gemm that makes the gradient of the weight."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.base import element_type, shape_of
from aicf_mlir.locations import fused_location
from aicf_mlir.passes.fuse.views import viewed_as


class FuseBiasGradient(RewritePattern):
    """reduce_sum(dy) over its rows and gemm(dy, x) {trans_a} -> gemm_epilogue(dy, x) {trans_a, bias_grad}."""

    def __init__(self, function: FuncOp):
        self.order = {op: position for position, op in enumerate(function.body.block.ops)}

    def defined(self, value: SSAValue) -> int:
        """Where `value` is defined; arguments come before everything."""
        return self.order[value.owner] if isinstance(value.owner, Operation) else -1

    def find_product(self, dy: SSAValue) -> kernel.GemmOp | None:
        """The first gemm that reads dy transposed as its left operand."""
        products = [
            use.operation
            for use in dy.uses
            if isinstance(use.operation, kernel.GemmOp)
            and use.index == 0
            and use.operation.attrs.get("trans_a") is True
        ]
        return min(products, key=lambda op: self.order[op], default=None)

    def find_place(self, reduction: kernel.ReduceSumOp, gemm: kernel.GemmOp) -> Operation | None:
        """The op before which both operands are defined and no result is used yet."""
        if self.order[gemm] < self.order[reduction]:
            return gemm
        if all(self.defined(operand) < self.order[reduction] for operand in gemm.operands):
            return reduction
        if all(self.order[use.operation] > self.order[gemm] for use in reduction.results[0].uses):
            return gemm
        return None

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: kernel.ReduceSumOp, rewriter: PatternRewriter) -> None:
        (dy,) = op.operands
        if len(shape_of(dy)) != 2 or op.attrs["dims"] != [0] or op.attrs.get("scale", 1.0) != 1.0:
            return
        if (gemm := self.find_product(dy)) is None or (place := self.find_place(op, gemm)) is None:
            return
        sums = TensorType(element_type(dy), shape_of(dy)[1:])
        attrs = {**gemm.attrs, "bias_grad": True}
        fused = kernel.GemmEpilogueOp.launch(gemm.operands, [*gemm.result_types, sums], **attrs)
        fused.location = fused_location(gemm, op)
        views, total = viewed_as(fused.results[1], op.results[0].type)
        for new in (fused, *views):
            self.order[new] = self.order[place]
        rewriter.insert([fused, *views], InsertPoint.before(place))
        rewriter.replace(op, [], [total])
        rewriter.replace(gemm, [], [fused.results[0]])
