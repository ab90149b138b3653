"""A private function that updates the parameters of a step, put in the place where the gradients are known."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.builder import Builder
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.signature import (
    Label,
    argument_labels,
    label_arguments,
    private_function,
    result_labels,
    return_op,
)

ADDED = ("state", "meta")
"""The roles of what the step gets as new arguments; a parameter is there already, and an input is its gradient."""


def inline_update(
    function: func.FuncOp, symbol: str, gradients: Mapping[str, SSAValue]
) -> list[tuple[SSAValue, Label]]:
    """
    Add the ops of @`symbol` at the end of `function`, and its states and metas to the arguments; what it updates.

    Raises VerifyException for a symbol or an argument that there is not.
    """
    module = function.parent_op()
    update = private_function(module, symbol) if isinstance(module, ModuleOp) else None
    if update is None:
        raise VerifyException(
            f"expected a private function @{symbol}, which updates the parameters, got none"
        )
    known = {
        (label.role, label.name): value
        for label, value in zip(argument_labels(function), function.args, strict=True)
    }
    values: dict[SSAValue, SSAValue] = {}
    added: list[Label] = []
    for label, argument in zip(argument_labels(update), update.args, strict=True):
        key = label.role, label.name
        if label.role in ADDED:
            if key in known:
                raise VerifyException(
                    f'there is a {label.role} named "{label.name}" already, which @{symbol} adds'
                )
            block = function.body.block
            values[argument] = block.insert_arg(argument.type, len(block.args))
            values[argument].name_hint = argument.name_hint
            added.append(label)
        else:
            found = gradients.get(label.name) if label.role == "input" else known.get(key)
            if found is None or found.type != argument.type:
                what = "the gradient of" if label.role == "input" else f"the {label.role}"
                raise VerifyException(
                    f"@{symbol} takes {what} {label.name}: {argument.type}, which the step does not have"
                )
            values[argument] = found
    builder = Builder(InsertPoint.before(return_op(function)))
    last = return_op(update)
    for op in update.body.block.ops:
        if op is not last:
            builder.insert(op.clone(values))
    label_arguments(function, added)
    return [
        (values.get(value, value), label)
        for value, label in zip(last.operands, result_labels(update), strict=True)
    ]
