"""A private function that updates the parameters of a step, put in the place where the gradients are known."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.builder import Builder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.signature import (
    ArgumentIndex,
    argument_labels,
    private_function,
    result_labels,
    return_op,
)
from aicf_mlir.optimizers.values import StepValues

ADDED = ("state", "host_scalar")
"""The roles of the values that the step gets as new arguments; a parameter is there already, and an input is its gradient."""


def inline_update(
    values: StepValues, symbol: str, gradients: Mapping[str, SSAValue], before: Operation
) -> None:
    """
    Add the ops of @`symbol` before an op, and its states and host scalars to the arguments.

    Raises VerifyException for a symbol or an argument that there is not.
    """
    module = values.function.parent_op()
    update = private_function(module, symbol) if isinstance(module, ModuleOp) else None
    if update is None:
        raise VerifyException(
            f"expected a private function @{symbol}, which updates the parameters, got none"
        )
    inside: dict[SSAValue, SSAValue] = {}
    for label, argument in zip(argument_labels(update), update.args, strict=True):
        key = label.role, label.name
        if label.role in ADDED:
            inside[argument] = values.added(label, argument.type, argument.name_hint, f"@{symbol}")
        else:
            found = gradients.get(label.name) if label.role == "input" else values.now.get(key)
            if found is None or found.type != argument.type:
                what = "the gradient of" if label.role == "input" else f"the {label.role}"
                raise VerifyException(
                    f"@{symbol} takes {what} {label.name}: {argument.type}, which the step does not have"
                )
            inside[argument] = found
    builder = Builder(InsertPoint.before(before))
    last = return_op(update)
    for op in update.body.block.ops:
        if op is not last:
            builder.insert(op.clone(inside))
    updates = list(zip(last.operands, result_labels(update), strict=True))
    index = ArgumentIndex(argument_labels(update))
    keys = [(argument_labels(update)[index.updated_by(label)[0]]) for _, label in updates]
    values.replace([(key.role, key.name) for key in keys], [inside.get(value, value) for value, _ in updates])
