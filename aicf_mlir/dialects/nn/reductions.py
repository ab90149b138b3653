"""Reductions that are more than the transpose of a broadcast: mean."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition

from aicf_mlir.dialects.nn.broadcasting import ReductionOp
from aicf_mlir.dialects.nn.elementwise import MulOp
from aicf_mlir.dialects.nn.shape import ConstantOp
from aicf_mlir.ir.expect import scalar_of

__all__ = ["MeanOp"]


@irdl_op_definition
class MeanOp(ReductionOp):
    """The sum over `dims` divided by how many elements it has; NaN over no elements, as in torch."""

    name = "nn.mean"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        if (count := self.reduced_count()) > 1:
            scale = builder.insert(ConstantOp(1 / count, scalar_of(g))).result
            g = builder.insert(MulOp(g, scale)).result
        return [self.spread(builder, g)]
