"""The derivative of a body without reductions: reverse mode over its lines, by one table of rules.

If a function has no derivative the rules follow torch: sign(0) at 0 for |x|, half to each of two equal operands of a maximum, 0
for functions that round and for the angle of the point (0, 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.body import CASTS, Body, Line, is_float
from aicf_mlir.ir.formula import (
    Builder,
    Scalar,
    cos,
    cosh,
    exp,
    log,
    power,
    select,
    sin,
    sinh,
    sqrt,
)

Partials = Sequence[Scalar | None]
Rule = (
    Callable[[Scalar, Scalar, Scalar], Partials]
    | Callable[[Scalar, Scalar, Scalar, Scalar], Partials]
    | Callable[[Scalar, Scalar, Scalar, Scalar, Scalar], Partials]
)
"""A rule from the cotangent of a line, its result and its operands to the cotangents of the operands."""


def derivative(body: Body) -> Body:
    """The body that takes a cotangent for each result, then the operands of `body`, and gives that of each operand.

    The cotangent is zero for operands that the results do not depend on. Operands that are no floats have no cotangent: the
    results are those of the float operands, in order. Raises VerifyException for an operation without a rule.
    """
    builder = Builder((*body.result_types, *body.args))
    given = [builder.scalar(number) for number in range(len(builder.args))]
    cotangents, values = given[: len(body.results)], given[len(body.results) :]
    for line in body.lines:
        made = builder.line(line.op, [values[arg].value for arg in line.args], line.type, line.attr)
        values.append(builder.scalar(made))
    arrived: dict[int, Scalar] = {}
    for result, cotangent in zip(body.results, cotangents, strict=True):
        add(arrived, result, cotangent)
    for number in range(len(body.lines) - 1, -1, -1):
        value, line = len(body.args) + number, body.lines[number]
        if value in arrived and is_float(line.type):
            rule: Callable[..., Partials] = rule_of(line)
            parts = rule(arrived[value], values[value], *(values[arg] for arg in line.args))
            for arg, part in zip(line.args, parts, strict=True):
                if part is not None and is_float(values[arg].type):
                    add(arrived, arg, part)
    floats = [number for number, type_ in enumerate(body.args) if is_float(type_)]
    zeros = [arrived.get(number) or builder.constant(0.0, body.args[number]) for number in floats]
    return builder.finish(zero.value for zero in zeros)


def add(arrived: dict[int, Scalar], value: int, cotangent: Scalar) -> None:
    """Add one more path from `value` to the results."""
    arrived[value] = arrived[value] + cotangent if value in arrived else cotangent


def rule_of(line: Line) -> Rule:
    """The rule of an operation with a float result."""
    if line.op in CASTS and line.op != "arith.bitcast":
        return _cast
    if (rule := RULES.get(line.op)) is None:
        raise VerifyException(f"{line.op} has no derivative; there are rules for {', '.join(RULES)}")
    return rule


def sign_of(x: Scalar) -> Scalar:
    """-1, 0 or 1; 0 for a NaN."""
    return select(x > 0.0, 1.0, select(x < 0.0, x.of(-1.0), 0.0))


def _cast(g: Scalar, y: Scalar, x: Scalar) -> Partials:
    if not x.is_float:
        return [None]
    return [g if x.type not in ("f16", "bf16") and x.type == g.type else _to(g, x.type)]


def _to(g: Scalar, type_: str) -> Scalar:
    """A cotangent in the type of the operand of a cast, for any widths."""
    wider = {"f16": 0, "bf16": 0, "f32": 1, "f64": 2}
    return g.apply("arith.extf" if wider[type_] > wider[g.type] else "arith.truncf", type_=type_)


def _max(g: Scalar, y: Scalar, a: Scalar, b: Scalar) -> Partials:
    half = 0.5 * g
    return [
        select(a < b, 0.0, select(a.equal(b), half, g)),
        select(b < a, 0.0, select(a.equal(b), half, g)),
    ]


def _min(g: Scalar, y: Scalar, a: Scalar, b: Scalar) -> Partials:
    half = 0.5 * g
    return [
        select(a > b, 0.0, select(a.equal(b), half, g)),
        select(b > a, 0.0, select(a.equal(b), half, g)),
    ]


def _power(g: Scalar, y: Scalar, a: Scalar, b: Scalar) -> Partials:
    base = select(b.equal(0.0), 0.0, g * (b * power(a, b - 1.0)))
    exponent = g * select(a.equal(0.0) & (b >= 0.0), 0.0, y * log(a))
    return [base, exponent]


def _atan2(g: Scalar, y: Scalar, a: Scalar, b: Scalar) -> Partials:
    square = a * a + b * b
    inverse = select(square.equal(0.0), 0.0, 1.0 / square)
    return [g * b * inverse, g * -a * inverse]


def _copysign(g: Scalar, y: Scalar, a: Scalar, b: Scalar) -> Partials:
    return [g * select(a.equal(0.0), 0.0, y / a), None]


def _nothing(g: Scalar, y: Scalar, *operands: Scalar) -> Partials:
    return [None] * len(operands)


RULES: Mapping[str, Rule] = {
    "arith.constant": _nothing,
    "arith.negf": lambda g, y, a: [-g],
    "arith.addf": lambda g, y, a, b: [g, g],
    "arith.subf": lambda g, y, a, b: [g, -g],
    "arith.mulf": lambda g, y, a, b: [g * b, g * a],
    "arith.divf": lambda g, y, a, b: [g / b, -(g * (y / b))],
    "math.fma": lambda g, y, a, b, c: [g * b, g * a, g],
    "arith.maximumf": _max,
    "arith.minimumf": _min,
    "arith.select": lambda g, y, c, a, b: [None, select(c, g, 0.0), select(c, g.of(0.0), g)],
    "math.absf": lambda g, y, a: [g * sign_of(a)],
    "math.acos": lambda g, y, a: [-(g / sqrt(1.0 - a * a))],
    "math.acosh": lambda g, y, a: [g / sqrt(a * a - 1.0)],
    "math.asin": lambda g, y, a: [g / sqrt(1.0 - a * a)],
    "math.asinh": lambda g, y, a: [g / sqrt(a * a + 1.0)],
    "math.atan": lambda g, y, a: [g / (a * a + 1.0)],
    "math.atan2": _atan2,
    "math.atanh": lambda g, y, a: [g / (1.0 - a * a)],
    "math.cbrt": lambda g, y, a: [g / (3.0 * y * y)],
    "math.copysign": _copysign,
    "math.cos": lambda g, y, a: [-(g * sin(a))],
    "math.cosh": lambda g, y, a: [g * sinh(a)],
    "math.erf": lambda g, y, a: [g * (2.0 / math.sqrt(math.pi)) * exp(-(a * a))],
    "math.exp": lambda g, y, a: [g * y],
    "math.exp2": lambda g, y, a: [g * y * math.log(2.0)],
    "math.expm1": lambda g, y, a: [g * (y + 1.0)],
    "math.log": lambda g, y, a: [g / a],
    "math.log10": lambda g, y, a: [g / (a * math.log(10.0))],
    "math.log1p": lambda g, y, a: [g / (a + 1.0)],
    "math.log2": lambda g, y, a: [g / (a * math.log(2.0))],
    "math.powf": _power,
    "math.rsqrt": lambda g, y, a: [-0.5 * g * (y * y * y)],
    "math.sin": lambda g, y, a: [g * cos(a)],
    "math.sinh": lambda g, y, a: [g * cosh(a)],
    "math.sqrt": lambda g, y, a: [g / (2.0 * y)],
    "math.tan": lambda g, y, a: [g * (y * y + 1.0)],
    "math.tanh": lambda g, y, a: [g * (1.0 - y * y)],
    **{f"math.{name}": _nothing for name in ("ceil", "floor", "round", "roundeven", "trunc")},
}
"""The rules by operation; all operations with a float result except reductions, loads and bit casts."""
