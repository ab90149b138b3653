"""Trigonometric functions of f32 and their inverses: computed in f64 and rounded once, for every argument."""

from __future__ import annotations

import math

from aicf_mlir.codegen.functions.polynomial import bits, horner, nearest, round_constant
from aicf_mlir.ir.formula import Scalar, absolute, copysign, select, sqrt

HALF_PI = tuple(map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69")))
"""Three parts; an integer below 2^21 times one of the first two is exact."""
LARGE = 1e6
"""The size from which on an integer may be too large."""
TWO_OVER_PI = (0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163)
"""2 / pi in digits of 24 bits, the first worth 2^-24 each."""
SIN = [(-1.0) ** (n // 2) / math.factorial(n) for n in range(11, 1, -2)]
COS = [(-1.0) ** (n // 2) / math.factorial(n) for n in range(12, 1, -2)]
"""Coefficients of sin(r) / r and cos(r), less 1, over r^2; |r| <= pi / 4. The first terms left out are 7e-12."""
ATAN = (
    *(0.030662440370424448757, -0.058745056213078307484, 0.075637035519151919886, -0.090783920729434234071),
    *(0.11110385046148013704, -0.14285690423839287162, 0.19999999604891977988, -0.33333333330803445908),
    0.99999999999997323166,
)
"""atan(z) / z in powers of z^2 for |z| <= tan(pi / 8): Chebyshev interpolation, within 3e-14."""


def _reduced(x: Scalar) -> tuple[Scalar, Scalar]:
    """(r, q) with x = r + q pi / 2 for an f64 below `LARGE`; the two low bits of the i64 q count."""
    shifted = x * (2.0 / math.pi) + round_constant("f64")
    n = shifted - round_constant("f64")
    for part in HALF_PI:
        x = x - n * part
    return x, bits(shifted)


def _reduced_large(x: Scalar) -> tuple[Scalar, Scalar]:
    """The same for any finite f32 as an f64.

    x times a digit of 2 / pi is exact, and so is its remainder modulo 4. These terms are added with their rounding
    errors, so that the fraction has more than the 53 bits of one f64.
    """
    total, error = x.of(0.0), x.of(0.0)
    for number, digit in enumerate(TWO_OVER_PI):
        product = x * (digit * 2.0 ** (-24 * (number + 1)))
        rest = product - 4.0 * nearest(product * 0.25)
        rest = select(absolute(product) < 2.0**52, rest, 0.0)  # beyond, 48 bits make a multiple of 4
        added = total + rest
        part = added - total
        error = error + ((total - (added - part)) + (rest - part))
        total = added
    shifted = total + round_constant("f64")
    return ((total - (shifted - round_constant("f64"))) + error) * (math.pi / 2.0), bits(shifted)


def _sin_cos(r: Scalar) -> tuple[Scalar, Scalar]:
    w = r * r
    return r * (1.0 + w * horner(w, *SIN)), 1.0 + w * horner(w, *COS)


def _turned(r: Scalar, q: Scalar) -> Scalar:
    """The sine of r + q pi / 2."""
    sine, cosine = _sin_cos(r)
    value = select((q & 1).differs(0), cosine, sine)
    return select((q & 2).differs(0), -value, value).cast("f32")


def _tangent(r: Scalar, q: Scalar) -> Scalar:
    sine, cosine = _sin_cos(r)
    crossed = (q & 1).differs(0)
    return (select(crossed, -cosine, sine) / select(crossed, sine, cosine)).cast("f32")


def sin_large(x: Scalar) -> Scalar:
    """The sine of any finite number."""
    return _turned(*_reduced_large(x.cast("f64")))


def cos_large(x: Scalar) -> Scalar:
    """The cosine of any finite number."""
    r, q = _reduced_large(x.cast("f64"))
    return _turned(r, q + 1)


def tan_large(x: Scalar) -> Scalar:
    """The tangent of any finite number."""
    return _tangent(*_reduced_large(x.cast("f64")))


RARE = {"sin_large": sin_large, "cos_large": cos_large, "tan_large": tan_large}
"""Functions that are computed only if a lane needs them, by name."""


def _rarely(x: Scalar, usual: Scalar, name: str) -> Scalar:
    """`usual`, but by the formula `RARE[name]` where x is large; an infinite x has given NaN."""
    large = (absolute(x) > LARGE) & (absolute(x) < math.inf)
    return large.apply("codegen.rarely", usual, x, type_=usual.type, attr=name)


def sin(x: Scalar) -> Scalar:
    """The sine."""
    return _rarely(x, _turned(*_reduced(x.cast("f64"))), "sin_large")


def cos(x: Scalar) -> Scalar:
    """The cosine."""
    r, q = _reduced(x.cast("f64"))
    return _rarely(x, _turned(r, q + 1), "cos_large")


def tan(x: Scalar) -> Scalar:
    """The tangent."""
    return _rarely(x, _tangent(*_reduced(x.cast("f64"))), "tan_large")


def _angle(y: Scalar, x: Scalar) -> Scalar:
    """atan2 of two f64 that are not NaN and whose quotient is within range."""
    t, s = absolute(y), absolute(x)
    steep = t > s
    small, large = select(steep, s, t), select(steep, t, s)
    ratio = select(large.equal(0.0), 0.0, select(small.equal(math.inf), 1.0, small / large))
    far = ratio > math.tan(math.pi / 8.0)
    z = select(far, (ratio - 1.0) / (ratio + 1.0), ratio)
    angle = z * horner(z * z, *ATAN) + select(far, z.of(math.pi / 4.0), 0.0)
    angle = select(steep, math.pi / 2.0 - angle, angle)
    angle = select(bits(x) < 0, math.pi - angle, angle)
    return copysign(angle, y)


def atan2(y: Scalar, x: Scalar) -> Scalar:
    """The angle of the point (x, y)."""
    unordered = y.apply("arith.cmpf", x, type_="i1", attr="uno")
    return select(unordered, x + y, _angle(y.cast("f64"), x.cast("f64")).cast("f32"))


def atan(x: Scalar) -> Scalar:
    """The inverse tangent."""
    return select(x.is_nan(), x, _angle(x.cast("f64"), x.cast("f64").of(1.0)).cast("f32"))


def _leg(x: Scalar) -> Scalar:
    """sqrt(1 - x^2) of an f64; NaN beyond 1."""
    return sqrt((1.0 - x) * (1.0 + x))


def asin(x: Scalar) -> Scalar:
    """The inverse sine."""
    wide = x.cast("f64")
    return select(absolute(x) <= 1.0, _angle(wide, _leg(wide)).cast("f32"), math.nan)


def acos(x: Scalar) -> Scalar:
    """The inverse cosine."""
    wide = x.cast("f64")
    return select(absolute(x) <= 1.0, _angle(_leg(wide), wide).cast("f32"), math.nan)
