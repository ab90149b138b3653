"""Rows of arithmetic: sums, products, quotients, powers, extremes."""

from __future__ import annotations

import math
from collections.abc import Callable

from aicf_mlir.dialects.nn.rows.row import ALL, BITS, NUMBERS, Pointwise
from aicf_mlir.ir.formula import (
    Scalar,
    absolute,
    copysign,
    exp,
    log,
    log1p,
    maximum,
    minimum,
    power,
    rsqrt,
    select,
    sqrt,
    trunc,
)

XY = ("x", "y")


def add(x: Scalar, y: Scalar) -> Scalar:
    """The sum; the or for booleans."""
    return x | y if x.type == "i1" else x + y


def quotient(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """The quotient x / y towards zero and the remainder, which has the sign of x: exact up to quotients of 2^53.

    In float64, with one rounding of the product: where the quotient was rounded up, the sign of the remainder tells.
    """
    if not x.is_float:
        return x.apply("arith.divsi", y), x.apply("arith.remsi", y)
    a, b = x.cast("f64"), y.cast("f64")
    whole = trunc(a / b)
    rest = (-whole).apply("math.fma", b, a)
    rest = select(absolute(b).equal(math.inf) & (absolute(a) < math.inf), a, rest)
    too_far = differ_in_sign(rest, a)
    whole = select(too_far, whole - copysign(a.of(1.0), whole), whole)
    return whole, copysign(select(too_far, rest + copysign(b, a), rest), a)


def fmod(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the sign of x."""
    return quotient(x, y)[1].cast(x.type)


def differ_in_sign(rest: Scalar, y: Scalar) -> Scalar:
    """True if a remainder must move by one divisor to have its sign."""
    return rest.differs(0) & ((rest < 0) ^ (y < 0))


def remainder(x: Scalar, y: Scalar) -> Scalar:
    """The remainder with the sign of y."""
    rest = quotient(x, y)[1].cast(x.type)
    return select(differ_in_sign(rest, y), rest + y, rest)


def floor_divide(x: Scalar, y: Scalar) -> Scalar:
    """The floor of the quotient as torch computes it: from the remainder, so that the quotient is not rounded up to the next
    whole number.
    """
    if not x.is_float:
        return x.apply("arith.floordivsi", y)
    whole, rest = quotient(x, y)
    down = select(differ_in_sign(rest, y.cast("f64")), whole - 1.0, whole)
    return select(y.equal(0.0), x / y, select(rest.is_nan(), rest, down).cast(x.type))


def trunc_divide(x: Scalar, y: Scalar) -> Scalar:
    """The quotient x / y towards zero."""
    return trunc(x / y) if x.is_float else x.apply("arith.divsi", y)


def whole_power(x: Scalar, exponent: int) -> Scalar:
    """The product x · x · …, by squaring."""
    if exponent == 1:
        return x
    half = whole_power(x, exponent // 2)
    return half * half * x if exponent % 2 else half * half


SPECIAL_POWERS: dict[float, Callable[[Scalar], Scalar]] = {
    0.0: lambda x: x.of(1),
    0.5: sqrt,
    -0.5: rsqrt,
    -1.0: lambda x: 1.0 / x,
    -2.0: lambda x: 1.0 / (x * x),
    **{float(n): lambda x, n=n: whole_power(x, n) for n in range(1, 5)},
}
"""Exponents that torch does not leave to the general function, and small whole ones."""


def power_of(x: Scalar, exponent: float) -> Scalar:
    """The power of x; for integers with whole exponents from 0 on. Another exponent is a number of x's type, as in torch."""
    if exponent in SPECIAL_POWERS and (x.is_float or (exponent >= 0 and exponent != 0.5)):
        return SPECIAL_POWERS[exponent](x)
    return power(x, x.number(exponent)) if x.is_float else whole_power(x, int(exponent))


def power_of_gradient(g: Scalar, x: Scalar, y: Scalar, exponent: float) -> Scalar:
    """Zero for the exponent 0, also at 0."""
    return g.of(0.0) if exponent == 0.0 else g * (exponent * power_of(x, exponent - 1.0))


def exponential_gradient(g: Scalar, x: Scalar, y: Scalar, base: float) -> Scalar:
    """The gradient of an exponential; 0 to the power of a non-negative number does not change."""
    if base == 0.0:
        return select(y <= 1.0, 0.0, g * (y * -math.inf))
    return g * (y * (math.log(base) if base > 0 else math.nan))


def clamp(x: Scalar, min: float, max: float) -> Scalar:
    """The clamped value. An infinite bound is no bound; a NaN for a bound gives NaN."""
    if x.is_float:
        return minimum(maximum(x, min), max)
    low = x if math.isinf(min) else maximum(x, min)
    return low if math.isinf(max) else minimum(low, max)


def within(g: Scalar, x: Scalar, y: Scalar, min: float, max: float) -> Scalar:
    """The gradient of a clamp to numbers. It passes at the bounds, which are numbers of x's type, as the result is there."""
    return select((x >= x.number(min)) & (x <= x.number(max)), g, 0.0)


def between(g: Scalar, x: Scalar, min: Scalar, max: Scalar, y: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The gradients of a clamp to tensors. g goes to x at the bounds too; if the bounds are equal and x is below, to none; a
    NaN in x passes to a `max` below `min`.
    """
    return (
        select((x >= min) & (x <= max), g, 0.0),
        select((min < max) & (x < min), g, 0.0),
        select((x > max) | (max < min), g, 0.0),
    )


def xlogy(x: Scalar, y: Scalar) -> Scalar:
    """0 where x is 0, unless y is a NaN."""
    return select(x.equal(0.0) & ~y.is_nan(), 0.0, x * log(y))


def xlog1py(x: Scalar, y: Scalar) -> Scalar:
    """0 where x is 0, unless y is a NaN."""
    return select(x.equal(0.0) & ~y.is_nan(), 0.0, x * log1p(y))


def xlog1py_gradient(g: Scalar, x: Scalar, y: Scalar, z: Scalar) -> tuple[Scalar, Scalar]:
    """The gradients of xlog1py; if x is 0 they are 0 beyond the domain of the logarithm."""
    return select(x.equal(0.0) & (y <= -1.0), 0.0, xlog1py(g, y)), g * x / (y + 1.0)


def logaddexp(x: Scalar, y: Scalar) -> Scalar:
    """The logarithm of exp(x) + exp(y) without overflow; for equal infinities it is the infinity."""
    larger = maximum(x, y)
    sum_ = larger + log1p(exp(-absolute(x - y)))
    return select(x.equal(y) & absolute(x).equal(math.inf), x, sum_)


def logaddexp_gradient(g: Scalar, x: Scalar, y: Scalar, z: Scalar) -> tuple[Scalar, Scalar]:
    """The share that each has."""
    return g / (exp(y - x) + 1.0), g / (exp(x - y) + 1.0)


ROWS = (
    Pointwise("add", "x + y; of booleans x or y.", add, XY, takes=ALL, commutative=True),
    Pointwise("sub", "x - y.", lambda x, y: x - y, XY, takes=NUMBERS),
    Pointwise("mul", "x * y; of booleans x and y.", lambda x, y: x * y, XY, takes=ALL, commutative=True),
    Pointwise("div", "x / y.", lambda x, y: x / y, XY),
    Pointwise("neg", "-x.", lambda x: -x, takes=NUMBERS),
    Pointwise("maximum", "The larger; a NaN where one is a NaN.", maximum, XY, takes=ALL, commutative=True),
    Pointwise("minimum", "The smaller; a NaN where one is a NaN.", minimum, XY, takes=ALL, commutative=True),
    Pointwise(
        "clamp_min",
        "x, but at least `min`: unlike a maximum, the whole gradient passes to x at the bound.",
        maximum,
        ("x", "min"),
        takes=NUMBERS,
        gradient=lambda g, x, min, y: (select(x >= min, g, 0.0), select(x < min, g, 0.0)),
    ),
    Pointwise(
        "clamp_max",
        "x, but at most `max`: unlike a minimum, the whole gradient passes to x at the bound.",
        minimum,
        ("x", "max"),
        takes=NUMBERS,
        gradient=lambda g, x, max, y: (select(x <= max, g, 0.0), select(x > max, g, 0.0)),
    ),
    Pointwise(
        "clamp_between",
        "x, but at least `min` and then at most `max`: its gradient is not that of one bound after the other.",
        lambda x, min, max: minimum(maximum(x, min), max),
        ("x", "min", "max"),
        takes=NUMBERS,
        gradient=between,
    ),
    Pointwise(
        "clamp",
        "x between the numbers `min` and `max`.",
        clamp,
        takes=NUMBERS,
        parameters={"min": -math.inf, "max": math.inf},
        gradient=within,
    ),
    Pointwise(
        "fmod",
        "The remainder of x / y, with the sign of x.",
        fmod,
        XY,
        takes=NUMBERS,
        gradient=lambda g, x, y, z: (g, -(g * trunc(x / y))),
    ),
    Pointwise(
        "remainder",
        "The remainder of x / y, with the sign of y.",
        remainder,
        XY,
        takes=NUMBERS,
        gradient=lambda g, x, y, z: (g, -(g * floor_divide(x, y))),
    ),
    Pointwise(
        "floor_divide",
        "x / y towards minus infinity.",
        floor_divide,
        XY,
        takes=NUMBERS,
        gradient=lambda g, x, y, z: (None, None),
    ),
    Pointwise("trunc_divide", "x / y towards zero.", trunc_divide, XY, takes=NUMBERS),
    Pointwise("pow", "x to the power of y.", power, XY),
    Pointwise(
        "pow_scalar",
        "x to the power of a number; integers to that of a whole number from 0 on.",
        power_of,
        takes=NUMBERS,
        parameters={"exponent": 2.0},
        gradient=power_of_gradient,
    ),
    Pointwise(
        "scalar_pow",
        "A number, of the type of x, to the power of x.",
        lambda x, base: power(x.number(base), x),
        parameters={"base": 2.0},
        gradient=exponential_gradient,
    ),
    Pointwise(
        "xlogy",
        "x * log(y), and 0 where x is 0.",
        xlogy,
        XY,
        gradient=lambda g, x, y, z: (select(x.equal(0.0) & (y <= 0.0), 0.0, xlogy(g, y)), g * x / y),
    ),
    Pointwise("xlog1py", "x * log(1 + y), and 0 where x is 0.", xlog1py, XY, gradient=xlog1py_gradient),
    Pointwise("logaddexp", "log(exp(x) + exp(y)).", logaddexp, XY, gradient=logaddexp_gradient),
    Pointwise(
        "where",
        "x where the condition holds, else y.",
        lambda condition, x, y: select(condition, x, y),
        ("condition", "x", "y"),
        masks=frozenset({"condition"}),
        takes=ALL,
    ),
    Pointwise(
        "bitwise_and",
        "x and y, bit by bit.",
        lambda x, y: x & y,
        XY,
        takes=BITS,
        differentiable=False,
        commutative=True,
    ),
    Pointwise(
        "bitwise_or",
        "x or y, bit by bit.",
        lambda x, y: x | y,
        XY,
        takes=BITS,
        differentiable=False,
        commutative=True,
    ),
    Pointwise(
        "bitwise_xor",
        "Where x and y differ, bit by bit.",
        lambda x, y: x ^ y,
        XY,
        takes=BITS,
        differentiable=False,
        commutative=True,
    ),
    Pointwise("bitwise_not", "Not x, bit by bit.", lambda x: ~x, takes=BITS, differentiable=False),
)
