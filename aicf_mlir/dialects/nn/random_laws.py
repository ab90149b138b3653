"""Random words as numbers of the normal and of the exponential distribution, with the same bits on every device.

A logarithm and a cosine of f32 have other last bits in each library of functions. Here their arguments are whole numbers, counts
of 2^-24, so that integers reduce both exactly. The rest is additions, explicit fused multiply-adds, a square root, and products
that no compiler can contract with an addition inexactly: each is rounded correctly everywhere. Errors are measured in
`tests/py/codegen/test_random_bits.py`. For f64 the functions are those of the device: there a fused multiply-add is a call on the
CPU.
"""

from __future__ import annotations

import math

from aicf_mlir.ir.formula import Scalar, cos, log, rounded, select, sqrt

COUNTED = 24
"""The binary digits of counts in f32."""

LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
"""A whole number up to 2^14 times the first is exact."""
LOG1P = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
"""(log(1 + t) - t + t^2 / 2) / t^3 from sqrt(1/2) - 1 to sqrt(2) - 1: Moshier's, in the Cephes library."""
SQRT_HALF = round(math.sqrt(0.5) * 2**COUNTED)
TURN_HIGH = rounded(2.0 * math.pi, "f32")
TURN_LOW = 2.0 * math.pi - TURN_HIGH
SIN = [(-1.0) ** (n // 2) * (2.0 * math.pi) ** n / math.factorial(n) for n in range(9, 1, -2)]
COS = [(-1.0) ** (n // 2) * (2.0 * math.pi) ** n / math.factorial(n) for n in range(10, 1, -2)]
"""Coefficients of sin(2 pi x) / x, less 2 pi, and of cos(2 pi x), less 1, over x^2, for |x| <= 1/8: terms left out are 2e-9 of
the sum.
"""


def fused(x: Scalar, y: Scalar | float, z: Scalar | float) -> Scalar:
    """The sum x * y + z, rounded once."""
    return x.apply("math.fma", y, z)


def polynomial(x: Scalar, coefficients: list[float] | tuple[float, ...]) -> Scalar:
    """The polynomial by fused multiply-adds; the coefficient of the highest power comes first."""
    result = x.of(coefficients[0])
    for coefficient in coefficients[1:]:
        result = fused(result, x, coefficient)
    return result


def log_of_count(count: Scalar) -> Scalar:
    """log(count / 2^24) in f32 of an i32 from 1 to 2^24."""
    exponent = count.of(0)
    for places in (16, 8, 4, 2, 1):
        small = count < 1 << (COUNTED - places)
        count = select(small, count.apply("arith.shli", places), count)
        exponent = exponent - select(small, exponent.of(places), 0)
    small = count < SQRT_HALF
    count = select(small, count + count, count)
    exponent = exponent - select(small, exponent.of(1), 0)
    t = (count - (1 << COUNTED)).cast("f32") * 2.0**-COUNTED
    e, w = exponent.cast("f32"), t * t
    tail = fused(w * t, polynomial(t, LOG1P), e * LN2_LOW)
    return fused(e, LN2_HIGH, t + fused(w, -0.5, tail))


def cos_of_count(count: Scalar) -> Scalar:
    """cos(2 pi count / 2^24) in f32 of an i32 from 0 to below 2^24."""
    quarter = COUNTED - 2
    turns = (count + (1 << (quarter - 1))).apply("arith.shrsi", quarter)
    x = (count - turns.apply("arith.shli", quarter)).cast("f32") * 2.0**-COUNTED
    w = x * x
    sine = fused(x, TURN_HIGH, x * fused(w, polynomial(w, SIN), TURN_LOW))
    cosine = fused(w, polynomial(w, COS), 1.0)
    value = select((turns & 1).differs(0), sine, cosine)
    return select(((turns + 1) & 2).differs(0), -value, value)


def counted(word: Scalar) -> Scalar:
    """The first 24 of its 32 binary digits, an i32."""
    return word.apply("arith.shrui", 32 - COUNTED).cast("i32")


def fraction64(one: Scalar, other: Scalar) -> Scalar:
    """A number of 53 binary digits in [0, 1), of two words."""
    most = one.apply("arith.shrui", 5) * (1 << 26)
    return (most + other.apply("arith.shrui", 6)).cast("f64") * 2.0**-53


def normal(words: tuple[Scalar, Scalar, Scalar, Scalar], compute: str) -> Scalar:
    """A normal number of mean 0 and variance 1 (Box and Muller, 1958)."""
    a, b, c, d = words
    if compute == "f64":
        radius = sqrt(-2.0 * log(fraction64(a, b) + 2.0**-53))
        return radius * cos(fraction64(c, d) * (2.0 * math.pi))
    radius = sqrt(-2.0 * log_of_count(counted(a) + 1))
    return fused(
        radius, cos_of_count(counted(c)), 0.0
    )  # no product that a later addition could be contracted with


def exponential(words: tuple[Scalar, Scalar, Scalar, Scalar], compute: str) -> Scalar:
    """An exponential number of rate 1: -log(1 - u) of a number u in [0, 1)."""
    a, b, _, _ = words
    if compute == "f64":
        return 0.0 - log(1.0 - fraction64(a, b))
    return 0.0 - log_of_count((1 << COUNTED) - counted(a))
