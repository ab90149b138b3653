"""The mean or sum of squared differences: a sum over all elements; its gradient is a map."""

from __future__ import annotations

from math import prod

from xdsl.ir import Operation

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.element_types import OVERFLOWING
from aicf_mlir.ir.formula import Scalar, row_sum
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.loss_loops.launches import launch, repeated
from aicf_mlir.passes.fuse.rounding import element_of


def loss(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """kernel.mse_loss."""
    (y,), (t,) = op.ins["y"], op.ins["t"]
    shape, count = shape_of(y), _divisor(op)

    def squares(y: Scalar, t: Scalar) -> Scalar:
        difference = y - t
        total = row_sum(in_range(difference * difference, element_of(op.results[0])))
        return total if count is None else total / count

    return [launch(bodies, "squared_error", squares, [y, t], [op.results[0].type], shape, len(shape))]


def in_range(x: Scalar, element: str) -> Scalar:
    """The term in the range of an element type that is smaller than that of f32: the sum sees the overflow, as in torch."""
    return x.rounded(element) if element in OVERFLOWING else x


def gradient(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """kernel.mse_grad: the differences, times the cotangent that all of them share."""
    (dloss,), (y,), (t,) = op.ins["dloss"], op.ins["y"], op.ins["t"]
    shape, count = shape_of(y), _divisor(op)
    factor = 2.0 if count is None else 2.0 / count

    def differences(dloss: Scalar, y: Scalar, t: Scalar) -> Scalar:
        return dloss * factor * (y - t)

    view = repeated(dloss, shape, [0] * len(shape))
    operands = [view.output, y, t]
    return [view, launch(bodies, "squared_error_grad", differences, operands, [op.results[0].type], shape, 0)]


def _divisor(op: KernelOp) -> int | None:
    """The divisor of a mean; None for a sum."""
    return prod(shape_of(op.ins["y"][0])) if op.attrs.get("reduction", "mean") == "mean" else None
