"""Constants, what only renames memory, and reductions."""

from __future__ import annotations

import math

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, nn


def lower_constant(op: nn.ConstantOp) -> list[Operation]:
    """Not a launch: a constant slot."""
    return [kernel.ConstantOp.build_op([], op.result_types, {"value": op.value})]


def lower_reshape(op: nn.ReshapeOp) -> list[Operation]:
    """Not a launch: another name for the same memory."""
    return [kernel.ReshapeOp.build_op([op.x], op.result_types)]


def lower_detach(op: nn.DetachOp) -> list[Operation]:
    """The same memory: only differentiation, which takes it away, sees a difference."""
    return [kernel.ReshapeOp.build_op([op.x], op.result_types)]


def lower_sum(op: nn.SumOp) -> list[Operation]:
    """Dimensions that are kept with size 1 are in the result type."""
    return [kernel.ReduceSumOp.launch([op.x], op.result_types, dims=list(op.dims.get_values()))]


def lower_mean(op: nn.MeanOp) -> list[Operation]:
    """The sum times 1 / count; NaN over no elements."""
    count = op.reduced_count()
    scale = 1.0 / count if count else math.nan
    return [kernel.ReduceSumOp.launch([op.x], op.result_types, dims=list(op.dims.get_values()), scale=scale)]


RULES = {
    nn.ConstantOp: lower_constant,
    nn.DetachOp: lower_detach,
    nn.ReshapeOp: lower_reshape,
    nn.SumOp: lower_sum,
    nn.MeanOp: lower_mean,
}
