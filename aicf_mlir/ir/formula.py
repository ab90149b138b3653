"""Formulas in Python that become bodies: scalars with operators, and the functions of `math`.

    def gelu(x: Scalar) -> Scalar:
        return 0.5 * x * (1.0 + erf(x * SQRT_HALF))

    trace(["f32"], gelu)   # a Body

Numbers take the type of the other operand. Equal operations are written once, and so are equal roundings of a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from aicf_mlir.ir.body import CHOICES, POWER_OF_INTEGER, Attr, Body, Line, exact_line, is_float, is_table
from aicf_mlir.ir.element_types import NARROW

Number = float | int | bool


_DIGITS: Mapping[str, tuple[int, int, int]] = {
    "f32": (24, -149, 128),
    "f16": (11, -24, 16),
    "bf16": (8, -133, 128),
}
"""For each floating-point type: binary digits, and the powers of two of its smallest number and of the first beyond its range."""


def rounded(value: float, type_: str) -> float:
    """A number in the floating-point type, to nearest even; infinite if it is out of range."""
    if type_ == "f64" or not math.isfinite(value) or not value:
        return value
    digits, least, beyond = _DIGITS[type_]
    unit = max(math.frexp(value)[1] - digits, least)
    found = math.ldexp(round(math.ldexp(value, -unit)), unit)
    return math.copysign(math.inf if abs(found) >= math.ldexp(1.0, beyond) else found, value)


class Builder:
    """A body under construction. `elements` are the element types of the tensors that the arguments are read from, if known."""

    def __init__(self, args: Sequence[str], elements: Sequence[str] = ()):
        self.args = tuple(args)
        self.elements = tuple(elements)
        self.lines: list[Line] = []
        self._known: dict[Line, int] = {}

    def line(self, op: str, args: Sequence[int], type_: str, attr: Attr = None) -> int:
        """The value of an operation: a new line, or one that is there already."""
        if op == "arith.truncf" and type_ in NARROW:
            args = [self.unrounded(args[0], type_)]
        if op == "arith.extf" and (exact := self._rounded_exact(args[0])) is not None:
            return exact
        line = Line(op, tuple(args), type_, attr)
        key = exact_line(line)
        if key not in self._known:
            self._known[key] = len(self.args) + len(self.lines)
            self.lines.append(line)
        return self._known[key]

    def unrounded(self, value: int, element: str) -> int:
        """A value with the bits of `value` once both are rounded to `element`, with fewer roundings to it, or `value`.

        Rounding is monotonic and odd, so a choice among numbers may as well be rounded after it.
        """
        line = self._line_of(value)
        if line is None:
            return value
        if line.op == "arith.extf":
            narrow = self._line_of(line.args[0])
            same = narrow is not None and (narrow.op, narrow.type) == ("arith.truncf", element)
            return narrow.args[0] if narrow is not None and same else value
        chosen = CHOICES.get(line.op)
        if chosen is None or line.type != "f32":
            return value
        args = (
            *line.args[: chosen.start],
            *(self.unrounded(arg, element) for arg in line.args[chosen]),
        )
        return value if args == line.args else self.line(line.op, args, line.type, line.attr)

    def _rounded_exact(self, narrow: int) -> int | None:
        """The argument that `narrow` rounds to the element type that it has in memory in any case; None if it is another."""
        line = self._line_of(narrow)
        if line is None or line.op != "arith.truncf" or line.args[0] >= len(self.elements):
            return None
        return line.args[0] if self.elements[line.args[0]] == line.type else None

    def _line_of(self, value: int) -> Line | None:
        """The operation that gives a value; None for an operand."""
        return None if value < len(self.args) else self.lines[value - len(self.args)]

    def scalar(self, value: int) -> Scalar:
        """A value with operators."""
        type_ = self.args[value] if value < len(self.args) else self.lines[value - len(self.args)].type
        return Scalar(self, value, type_)

    def constant(self, value: Number, type_: str) -> Scalar:
        """A number of a type, rounded to it."""
        number = rounded(float(value), type_) if is_float(type_) else int(value)
        return self.scalar(self.line("arith.constant", (), type_, number))

    def index(self, dim: int) -> Scalar:
        """The position of this element in dimension `dim` of the domain, an i64."""
        return self.scalar(self.line("scalar.index", (), "i64", dim))

    def inline(self, body: Body, args: Sequence[int]) -> list[int]:
        """The results of `body` on values of this one."""
        values = list(args)
        for line in body.lines:
            values.append(self.line(line.op, [values[arg] for arg in line.args], line.type, line.attr))
        return [values[value] for value in body.results]

    def finish(self, results: Iterable[int]) -> Body:
        """The body with these results, and only the lines that they need."""
        kept = list(results)
        first = len(self.args)
        needed = set(kept)
        for number in range(len(self.lines) - 1, -1, -1):
            if first + number in needed:
                needed.update(self.lines[number].args)
        renamed = {value: value for value in range(first)}
        lines: list[Line] = []
        for number, line in enumerate(self.lines):
            if first + number in needed:
                renamed[first + number] = first + len(lines)
                lines.append(Line(line.op, tuple(renamed[arg] for arg in line.args), line.type, line.attr))
        return Body(self.args, tuple(lines), tuple(renamed[value] for value in kept))


class Scalar:
    """A value of a body with Python's operators. Comparisons give i1; `==` and `!=` are `equal` and `differs`."""

    __slots__ = ("builder", "type", "value")

    def __init__(self, builder: Builder, value: int, type_: str):
        self.builder, self.value, self.type = builder, value, type_

    @property
    def is_float(self) -> bool:
        """True if it is of floating point."""
        return is_float(self.type)

    @property
    def element(self) -> str:
        """The element type of the tensor that an argument is read from; its own type if that is not known."""
        elements = self.builder.elements
        return elements[self.value] if self.value < len(elements) else self.type

    def of(self, other: Scalar | Number) -> Scalar:
        """A number as a scalar of this one's type; a scalar as it is."""
        return other if isinstance(other, Scalar) else self.builder.constant(other, self.type)

    def number(self, value: float) -> Scalar:
        """A number as an element of the tensor that this argument is read from has it."""
        return self.of(rounded(value, self.element) if self.is_float else value)

    def apply(self, op: str, *others: Scalar | Number, type_: str | None = None, attr: Attr = None) -> Scalar:
        """The operation `op` on this one and `others`."""
        values = [self.value, *(self.of(other).value for other in others)]
        return self.builder.scalar(self.builder.line(op, values, type_ or self.type, attr))

    def _binary(self, name: str, other: Scalar | Number) -> Scalar:
        suffix = "f" if self.is_float else "si" if name == "div" else "i"
        return self.apply(f"arith.{name}{suffix}", other)

    def _compare(self, predicate: str, other: Scalar | Number) -> Scalar:
        if self.is_float:
            ordered = "u" if predicate == "ne" else "o"
            return self.apply("arith.cmpf", other, type_="i1", attr=ordered + predicate)
        signed = predicate if predicate in ("eq", "ne") else ("u" if self.type == "i1" else "s") + predicate
        return self.apply("arith.cmpi", other, type_="i1", attr=signed)

    def __add__(self, other: Scalar | Number) -> Scalar:
        return self._binary("add", other)

    def __radd__(self, other: Number) -> Scalar:
        return self.of(other) + self

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return self._binary("sub", other)

    def __rsub__(self, other: Number) -> Scalar:
        return self.of(other) - self

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return self._binary("mul", other)

    def __rmul__(self, other: Number) -> Scalar:
        return self.of(other) * self

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return self._binary("div", other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return self.of(other) / self

    def __neg__(self) -> Scalar:
        return self.apply("arith.negf") if self.is_float else self.of(0) - self

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return self._compare("lt", other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return self._compare("le", other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return self._compare("gt", other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return self._compare("ge", other)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return self.apply("arith.andi", other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return self.apply("arith.ori", other)

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return self.apply("arith.xori", other)

    def __invert__(self) -> Scalar:
        return self.apply("arith.xori", 1 if self.type == "i1" else -1)

    def equal(self, other: Scalar | Number) -> Scalar:
        """True if both are equal; false with a NaN."""
        return self._compare("eq", other)

    def differs(self, other: Scalar | Number) -> Scalar:
        """True if they differ; true with a NaN."""
        return self._compare("ne", other)

    def is_nan(self) -> Scalar:
        """True if it is not a number."""
        return self.apply("arith.cmpf", self, type_="i1", attr="uno")

    def cast(self, type_: str) -> Scalar:
        """The value converted to another type that bodies compute in, as torch converts; itself if it has that type."""
        if type_ == self.type:
            return self
        if type_ == "i1":
            return self.differs(0)
        if self.is_float:
            if not is_float(type_):
                return self.apply("arith.fptosi", type_=type_)
            return self.apply("arith.truncf" if type_ == "f32" else "arith.extf", type_=type_)
        if is_float(type_):
            return self.apply("arith.uitofp" if self.type == "i1" else "arith.sitofp", type_=type_)
        if self.type == "i1":
            return self.apply("arith.extui", type_=type_)
        return self.apply("arith.extsi" if type_ == "i64" else "arith.trunci", type_=type_)

    def rounded(self, element: str) -> Scalar:
        """The value rounded to an element type and widened again, as if there were a tensor of that type in between."""
        if element not in NARROW:
            return self.cast(element)
        narrow = self.cast("f32").apply("arith.truncf", type_=element)
        return narrow.apply("arith.extf", type_="f32")

    def load(self, *indices: Scalar) -> Scalar:
        """The element of this table at i64 indices, each clamped into the table."""
        assert is_table(self.type), self.type
        return self.apply("scalar.load", *indices, type_=self.type.rpartition("x")[2])


def select(condition: Scalar, yes: Scalar | Number, no: Scalar | Number) -> Scalar:
    """`yes` where the i1 `condition` holds, else `no`; one of them is a scalar."""
    typed = yes if isinstance(yes, Scalar) else no
    assert isinstance(typed, Scalar)
    left, right = typed.of(yes), typed.of(no)
    return condition.apply("arith.select", left, right, type_=typed.type)


def _unary(name: str, dialect: str = "math") -> Callable[[Scalar], Scalar]:
    def function(x: Scalar) -> Scalar:
        return x.apply(f"{dialect}.{name}")

    function.__doc__ = f"{dialect}.{name}."
    return function


acos, acosh, asin, asinh, atan, atanh = map(_unary, ("acos", "acosh", "asin", "asinh", "atan", "atanh"))
ceil, cos, cosh, erf, exp, exp2, expm1 = map(_unary, ("ceil", "cos", "cosh", "erf", "exp", "exp2", "expm1"))
floor, log, log10, log1p, log2 = map(_unary, ("floor", "log", "log10", "log1p", "log2"))
roundeven, rsqrt, sin, sinh, sqrt = map(_unary, ("roundeven", "rsqrt", "sin", "sinh", "sqrt"))
tan, tanh, trunc = map(_unary, ("tan", "tanh", "trunc"))
row_sum, row_max = _unary("sum", "scalar"), _unary("max", "scalar")
row_min, row_prod = _unary("min", "scalar"), _unary("prod", "scalar")
column_sum = _unary("column_sum", "scalar")


def absolute(x: Scalar) -> Scalar:
    """|x|."""
    return x.apply("math.absf" if x.is_float else "math.absi")


def maximum(x: Scalar, y: Scalar | Number) -> Scalar:
    """The larger; a NaN if one is a NaN."""
    return x.apply("arith.maximumf" if x.is_float else "arith.maxui" if x.type == "i1" else "arith.maxsi", y)


def minimum(x: Scalar, y: Scalar | Number) -> Scalar:
    """The smaller; a NaN if one is a NaN."""
    return x.apply("arith.minimumf" if x.is_float else "arith.minui" if x.type == "i1" else "arith.minsi", y)


def fma(x: Scalar, y: Scalar | Number, z: Scalar | Number) -> Scalar:
    """The sum x · y + z of f32, rounded once."""
    return x.apply("math.fma", y, z)


def power(x: Scalar, y: Scalar | Number) -> Scalar:
    """Return x to the power of y."""
    return x.apply("math.powf", y)


def integer_power(x: Scalar, exponent: Scalar) -> Scalar:
    """Return x to the power of an integer."""
    return x.apply(POWER_OF_INTEGER, exponent)


def atan2(y: Scalar, x: Scalar | Number) -> Scalar:
    """The angle of the point (x, y)."""
    return y.apply("math.atan2", x)


def copysign(x: Scalar, sign: Scalar | Number) -> Scalar:
    """|x| with the sign of `sign`."""
    return x.apply("math.copysign", sign)


SQRT_HALF = math.sqrt(0.5)


def trace(
    args: Sequence[str], formula: Callable[..., Any], *, elements: Sequence[str] = (), **parameters: Any
) -> Body:
    """The body of `formula`, which takes a scalar for each of the types `args` and gives one or a sequence of them.

    `elements` are the element types of the tensors that the arguments are read from, if known.
    """
    builder = Builder(args, elements)
    made = formula(*(builder.scalar(number) for number in range(len(args))), **parameters)
    results = [made] if isinstance(made, Scalar) else list(made)
    return builder.finish(result.value for result in results)
