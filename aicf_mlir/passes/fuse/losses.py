"""A squared error and its gradient as loops, on a GPU: the gradient joins the product that makes the prediction, or the sum.

The prebuilt launches read prediction and target twice, and a cast in front of each and behind. As a reduction and a map they
are computed where the prediction is: in the epilogue of its product, or where that has none, in one pass with the sum.
On the CPU, whose launches are calls, the prebuilt ones stay.
"""

from __future__ import annotations

from math import prod

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COMPUTE
from aicf_mlir.ir.formula import Scalar, row_sum, trace
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.tensor_op import shape_of, tensor_type


def write_losses_as_loops(function: FuncOp, bodies: Bodies) -> None:
    """Replace every kernel.mse_loss and kernel.mse_grad of tensors with a dimension."""
    for op in list(function.body.block.ops):
        if isinstance(op, kernel.MseLossOp | kernel.MseGradOp) and shape_of(op.ins["y"][0]):
            made = _loss(op, bodies) if isinstance(op, kernel.MseLossOp) else _gradient(op, bodies)
            for new in made:
                new.location = op.location
            made[-1].results[0].name_hint = op.results[0].name_hint
            Rewriter.replace_op(op, made)


def _loss(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """The sum of squares over all elements."""
    (y,), (t,) = op.ins["y"], op.ins["t"]
    shape, count = list(shape_of(y)), _divisor(op)

    def squares(y: Scalar, t: Scalar) -> Scalar:
        difference = y - t
        total = row_sum(difference * difference)
        return total if count is None else total / count

    type_ = COMPUTE[tensor_spec(y)[0]]
    symbol = bodies.symbol(trace([type_, type_], squares), "squared_error")
    launch = kernel.RowwiseOp.launch(
        {"x": [y, t], "table": []},
        {"y": [op.results[0].type]},
        body=Symbol(symbol),
        shape=shape,
        reduced=len(shape),
    )
    return [launch]


def _gradient(op: KernelOp, bodies: Bodies) -> list[Operation]:
    """The differences, times the cotangent that all of them share."""
    (dloss,), (y,), (t,) = op.ins["dloss"], op.ins["y"], op.ins["t"]
    shape, count = shape_of(y), _divisor(op)
    factor = 2.0 if count is None else 2.0 / max(count, 1)
    view = kernel.ViewOp.build_op(
        [dloss], [with_layout(tensor_type(dloss), Layout(shape, (0,) * len(shape)))]
    )
    type_ = COMPUTE[tensor_spec(y)[0]]

    def differences(dloss: Scalar, y: Scalar, t: Scalar) -> Scalar:
        return dloss * factor * (y - t)

    symbol = bodies.symbol(trace([type_] * 3, differences), "squared_error_grad")
    launch = kernel.MapOp.launch(
        {"x": [view.output, y, t], "table": []},
        {"y": [op.results[0].type]},
        body=Symbol(symbol),
        shape=list(shape),
    )
    return [view, launch]


def _divisor(op: KernelOp) -> int | None:
    """What a mean divides by; None for a sum."""
    return prod(shape_of(op.ins["y"][0])) if op.attrs.get("reduction", "mean") == "mean" else None
