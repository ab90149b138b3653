"""One use of a kernel op, as its meaning sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.ir.attributes import AttributeValue
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.registry import TensorSpec


@dataclass(frozen=True)
class Call:
    """One use of an op: inputs by name, widened to float64 (integers stay), attributes, types of the outputs."""

    inputs: Mapping[str, Sequence[Array]]
    attrs: Mapping[str, AttributeValue]
    outputs: Mapping[str, Sequence[TensorSpec]]
    bodies: Sequence[Body] = ()
    """The bodies of a launch whose kernel is generated."""
    arithmetic: Arithmetic = ROUNDED
    elements: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The element types of the inputs as they are given: of exact arithmetic f64 for every float."""

    @property
    def body(self) -> Body:
        """The one body of a launch that has one."""
        (body,) = self.bodies
        return body

    def __getitem__(self, name: str) -> Array:
        """The operand with this name."""
        return self.inputs[name][0]

    def has(self, name: str) -> bool:
        """True if an optional operand or result is there."""
        return bool(self.inputs.get(name) or self.outputs.get(name))

    def flag(self, name: str) -> bool:
        """A boolean attribute, false when absent."""
        return self.attrs.get(name, False) is True

    def attr(self, name: str, default: Any) -> Any:
        """An attribute, or the value that its absence means."""
        return self.attrs.get(name, default)


Meaning = Callable[[Call], Sequence[Array]]


BY_ARGUMENT = ("map", "rowwise", "colwise")
"""The launches whose operands are the arguments of their body, in order."""


def compared(op_name: str, bodies: Sequence[Body]) -> Collection[int]:
    """The operands of a launch, by number, that its body compares as they are."""
    return bodies[0].compared if op_name in BY_ARGUMENT else ()
