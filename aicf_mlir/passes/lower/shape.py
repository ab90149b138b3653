"""Constants, ops that only rename memory, and reductions."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, dense_strides, with_layout
from aicf_mlir.ir.properties import float_attr
from aicf_mlir.ir.tensor_op import shape_of, tensor_type


def lower_constant(op: nn.ConstantOp) -> list[Operation]:
    """Lower a constant to a constant slot, which is no launch."""
    return [kernel.ConstantOp.build_op([], op.result_types, {"value": op.value})]


def lower_reshape(op: nn.ReshapeOp) -> list[Operation]:
    """Lower a reshape to another name for the same memory, which is no launch."""
    return [kernel.ReshapeOp.build_op([op.x], op.result_types)]


def lower_detach(op: nn.DetachOp) -> list[Operation]:
    """The same memory: only differentiation, which takes it away, sees a difference."""
    return [kernel.ReshapeOp.build_op([op.x], op.result_types)]


def copied_view(x: SSAValue, layout: Layout) -> list[Operation]:
    """The elements of `x` at `layout`, as a tensor of their own; elide-copies may remove it."""
    view = kernel.ViewOp.build_op([x], [with_layout(tensor_type(x), layout)])
    return [view, kernel.CopyOp.launch([view], [with_shape(x, layout.shape)])]


def lower_transpose(op: nn.TransposeOp) -> list[Operation]:
    """A copy in another order."""
    strides, perm = dense_strides(shape_of(op.x)), op.perm.get_values()
    return copied_view(op.x, Layout(shape_of(op.result), tuple(strides[d] for d in perm)))


def lower_broadcast_to(op: nn.BroadcastToOp) -> list[Operation]:
    """A copy that repeats: each element is read again where the stride is 0."""
    shape, wide = shape_of(op.x), shape_of(op.result)
    strides = dense_strides(shape)
    repeated = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    return copied_view(op.x, Layout(wide, (*[0] * (len(wide) - len(shape)), *repeated)))


def lower_split(op: nn.SplitOp) -> list[Operation]:
    """A copy for each part."""
    parts = [copied_view(op.x, layout) for layout in op.layouts()]
    return [*(view for view, _ in parts), *(copy for _, copy in parts)]


def lower_concat(op: nn.ConcatOp) -> list[Operation]:
    """A copy of each part to its place."""
    if len(op.inputs) == 1:
        return [kernel.ReshapeOp.build_op(op.inputs, op.result_types)]
    copies: list[Operation] = []
    for x, layout in zip(op.inputs, op.layouts(), strict=True):
        if layout.count:
            copies.append(kernel.CopyOp.launch([x], [with_layout(tensor_type(x), layout)]))
    if not copies:
        return [kernel.ConstantOp.build_op([], op.result_types, {"value": float_attr(0.0)})]
    return [*copies, kernel.JoinOp.build_op(copies, op.result_types)]


def lower_sum(op: nn.SumOp) -> list[Operation]:
    """Dimensions that are kept with size 1 are in the result type."""
    return [kernel.ReduceSumOp.launch([op.x], op.result_types, dims=list(op.dims.get_values()))]


def lower_mean(op: nn.MeanOp) -> list[Operation]:
    """The sum divided by how many elements it has."""
    dims, count = list(op.dims.get_values()), float(op.reduced_count())
    return [kernel.ReduceSumOp.launch([op.x], op.result_types, dims=dims, divisor=count)]


RULES = {
    nn.ConstantOp: lower_constant,
    nn.DetachOp: lower_detach,
    nn.ReshapeOp: lower_reshape,
    nn.TransposeOp: lower_transpose,
    nn.BroadcastToOp: lower_broadcast_to,
    nn.SplitOp: lower_split,
    nn.ConcatOp: lower_concat,
    nn.SumOp: lower_sum,
    nn.MeanOp: lower_mean,
}
