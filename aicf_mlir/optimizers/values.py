"""The current values of a step's arguments, while its updates are written one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import func
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.signature import Key, Label, argument_labels, label_arguments


class StepValues:
    """The arguments of a function by role and name, their values now, and the arguments that the updates add."""

    def __init__(self, function: func.FuncOp):
        self.function = function
        self.arguments: dict[Key, SSAValue] = {
            (label.role, label.name): argument
            for label, argument in zip(argument_labels(function), function.args, strict=True)
        }
        self.now: dict[Key, SSAValue] = dict(self.arguments)
        self._added: dict[Key, Label] = {}
        """Arguments of the block that are not in the signature yet."""
        self._replaced: dict[Key, None] = {}

    def added(self, label: Label, type: Attribute, hint: str | None, who: str) -> SSAValue:
        """The current value of an argument that the updates add: a new one at the first step, later the last update.

        Raises VerifyException if the function had one of this name from the start; `who` would add it.
        """
        key = label.role, label.name
        if key not in self._added:
            if key in self.arguments:
                raise VerifyException(
                    f'@{self.function.sym_name.data} has a {label.role} named "{label.name}", which {who} adds; leave it out'
                )
            block = self.function.body.block
            argument = block.insert_arg(type, len(block.args))
            argument.name_hint = hint
            self.arguments[key] = self.now[key] = argument
            self._added[key] = label
        return self.now[key]

    def replace(self, keys: Sequence[Key], values: Sequence[SSAValue]) -> None:
        """Put these new values in the place of arguments."""
        for key, value in zip(keys, values, strict=True):
            self.now[key] = value
            self._replaced[key] = None

    def named_after(self, keys: Sequence[Key], values: Sequence[SSAValue]) -> None:
        """Name new values after the arguments that they replace: %w.next after %w."""
        for key, value in zip(keys, values, strict=True):
            if hint := self.arguments[key].name_hint:
                value.name_hint = f"{hint}.next"

    def finish(self) -> None:
        """Write the new arguments into the signature."""
        label_arguments(self.function, list(self._added.values()))

    def updates(self) -> list[tuple[SSAValue, Label]]:
        """The last value of everything that was replaced, in the order in which that happened first."""
        return [
            (self.now[role, name], Label("update", name, target_role=role)) for role, name in self._replaced
        ]
