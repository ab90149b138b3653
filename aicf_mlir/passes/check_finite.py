"""Train nothing in a step whose loss or gradient is not finite: one more check, which the status passes on."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import PassFailedException

from aicf_mlir.dialects import nn
from aicf_mlir.ir.division import gradient_names
from aicf_mlir.ir.signature import (
    STATUS,
    STATUS_LABEL,
    STATUS_TYPE,
    append_argument,
    result_labels,
    return_op,
    set_results,
    steps,
)


@dataclass(frozen=True)
class CheckFinitePass(ModulePass):
    """Check the loss and the gradients among the results of every function: one that is not finite fails the status.

    The check follows the checks of the function; a function without a status gets one, as its last argument and result.
    A gradient that only another rank has is a 0 in its place.
    """

    name = "check-finite"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            check(function)


def check(function: func.FuncOp) -> None:
    """Put one more check after those of `function`."""
    results = list(zip(return_op(function).operands, result_labels(function), strict=True))
    losses = [value for value, label in results if label.role == "loss"]
    gradients = {label.name: value for value, label in results if label.role == "grad"}
    names = gradient_names(function)
    if not losses or not names:
        message = (
            f"@{function.sym_name.data} has no loss with gradients among its results; run autodiff first"
        )
        function.emit_error(message, PassFailedException(message))
    given = [value for value, label in results if label.role == STATUS]
    status = given[0] if given else status_argument(function)
    code = 1 + max((op.codes[-1] for op in function.walk() if isinstance(op, nn.CheckOp)), default=0)
    builder = Builder(InsertPoint.before(return_op(function)))
    if len(gradients) < len(names):  # the codes are those of all ranks
        zero = builder.insert(nn.ConstantOp(0.0, TensorType(f32, []))).result
        gradients = dict.fromkeys(names, zero) | gradients
    op = nn.CheckFiniteOp(status, [*losses, *gradients.values()], code)
    if isinstance(losses[0], OpResult):
        op.location = losses[0].op.location
    builder.insert(op)
    op.result.name_hint = "check_finite"
    if not given:
        results.append((op.result, STATUS_LABEL))
    set_results(function, [(op.result if label.role == STATUS else value, label) for value, label in results])


def status_argument(function: func.FuncOp) -> SSAValue:
    """A new status argument."""
    argument = append_argument(function, STATUS_TYPE, STATUS_LABEL)
    argument.name_hint = STATUS_LABEL.name
    return argument
