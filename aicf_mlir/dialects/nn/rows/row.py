"""A row of the table of pointwise ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aicf_mlir.ir.formula import Scalar

Parameter = float | str
"""A number that the user wrote, or one of a few words."""

Partials = Scalar | Sequence[Scalar | None]
"""The cotangent of the one operand, or of each; None stands for one that no gradient flows into."""

Formula = (
    Callable[[Any], Scalar]
    | Callable[[Any, Any], Scalar]
    | Callable[[Any, Any, Any], Scalar]
    | Callable[[Any, Any, Any, Any], Scalar]
)
"""A formula from the operands, followed by the parameters, by name."""

Gradient = (
    Callable[[Any, Any, Any], Partials]
    | Callable[[Any, Any, Any, Any], Partials]
    | Callable[[Any, Any, Any, Any, Any], Partials]
    | Callable[[Any, Any, Any, Any, Any, Any], Partials]
)
"""A gradient from the cotangent of the result, the operands, the result, and the parameters by name."""

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
INTEGERS = frozenset({"i32", "i64"})
BOOLEANS = frozenset({"i1"})
NUMBERS = FLOATS | INTEGERS
ALL = NUMBERS | BOOLEANS
BITS = INTEGERS | BOOLEANS


@dataclass(frozen=True, eq=False)
class Pointwise:
    """One pointwise op. Its operands broadcast together and have one element type, except for `masks`."""

    name: str
    """The name in the nn dialect, without the prefix; the class `LeakyReluOp` is the op `nn.leaky_relu`."""
    doc: str
    formula: Formula
    """The formula from the operands, as scalars of their compute type, and the parameters by name."""
    operands: tuple[str, ...] = ("x",)
    masks: frozenset[str] = frozenset()
    """The operands of i1, for any type of the others."""
    takes: frozenset[str] = FLOATS
    """Element types of the operands."""
    result: str | None = None
    """The element type of the result, if it is not that of the operands."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    """The parameters by name, with their defaults."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The possible values of each parameter that is a word."""
    gradient: Gradient | None = None
    """The gradient from the cotangent of the result, the operands, the result and the parameters to the cotangents of the
    operands.

    Without it the formula is differentiated: that is wrong if a branch that is not taken has no finite derivative.
    """
    differentiable: bool = True
    commutative: bool = False
