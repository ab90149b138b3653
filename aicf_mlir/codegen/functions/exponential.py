"""Exponentials, logarithms and functions derived from them, of f32: computed in f64 and rounded once.

The f64 parts have a relative error below 1e-11, so that every result is within 0.501 units in the last place of
f32. Infinities, zeros and NaN are those of C.
"""

from __future__ import annotations

import math

from aicf_mlir.codegen.functions.polynomial import (
    bits,
    from_bits,
    horner,
    odd,
    round_constant,
    shifted_left,
    shifted_right,
)
from aicf_mlir.codegen.functions.rounding import trunc
from aicf_mlir.ir.formula import Scalar, absolute, copysign, select, sqrt

INFINITY, NAN = math.inf, math.nan
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
EXPM1 = [1.0 / math.factorial(n) for n in range(10, 1, -1)]
"""(exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2, Taylor's series: the first term left out is 2e-13 of the sum."""
ATANH = [1.0 / n for n in range(15, 1, -2)]
"""(atanh(s) / s - 1) / s^2 for |s| <= 0.1716: the first term left out is 4e-14 of the sum."""


def _narrow(x: Scalar) -> Scalar:
    return x.cast("f32")


def _exp_parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """(exp(r) - 1, 2^n) with exp(x) = exp(r) 2^n, for an f64."""
    x = select(x > 700.0, 700.0, x)
    x = select(x < -700.0, -700.0, x)  # NaN passes both
    shifted = x * (1.0 / math.log(2.0)) + round_constant("f64")
    n = shifted - round_constant("f64")
    r = x - n * math.log(2.0)
    p = (horner(r, *EXPM1) * r) * r + r
    return p, from_bits(shifted_left(bits(shifted) + 1023, 52))


def exp64(x: Scalar) -> Scalar:
    """The exponential of an f64 within ±700; beyond, a value that rounds to infinity or zero in f32."""
    p, scale = _exp_parts(x)
    return p * scale + scale


def expm1_64(x: Scalar) -> Scalar:
    """exp(x) - 1 of an f64, in relative precision also near 0."""
    p, scale = _exp_parts(x)
    return p * scale + (scale - 1.0)


def _log(x: Scalar, less_one: Scalar | None) -> Scalar:
    """The logarithm of a positive normal f64; if it is near 1, its difference from 1 may be known better than itself."""
    exponent = shifted_right(bits(x) - SQRT_HALF_BITS, 52)
    mantissa = from_bits(bits(x) - shifted_left(exponent, 52))
    above, below = mantissa - 1.0, mantissa + 1.0
    if less_one is not None:
        above = select(exponent.equal(0), less_one, above)
    s = above / below
    w = s * s
    e = from_bits(exponent + 0x4338000000000000) - round_constant("f64")  # those are the constant's bits
    return e * math.log(2.0) + (s + s) * (1.0 + w * horner(w, *ATANH))


def log64(x: Scalar) -> Scalar:
    """The logarithm of a positive normal f64."""
    return _log(x, None)


def log1p_64(x: Scalar) -> Scalar:
    """log(1 + x) of an f64 above -1, in relative precision also near 0."""
    return _log(1.0 + x, x)


def _logarithm(x: Scalar, scale: float) -> Scalar:
    good = (x > 0.0) & (x < INFINITY)
    special = select(x.equal(0.0), -INFINITY, select(x < 0.0, NAN, x))
    return select(good, _narrow(log64(x.cast("f64")) * scale), special)


def log(x: Scalar) -> Scalar:
    """The natural logarithm."""
    return _logarithm(x, 1.0)


def log2(x: Scalar) -> Scalar:
    """The logarithm to base 2."""
    return _logarithm(x, 1.0 / math.log(2.0))


def log10(x: Scalar) -> Scalar:
    """The logarithm to base 10."""
    return _logarithm(x, 1.0 / math.log(10.0))


def log1p(x: Scalar) -> Scalar:
    """log(1 + x)."""
    good = (x > -1.0) & (x < INFINITY)
    special = select(x.equal(-1.0), -INFINITY, select(x < -1.0, NAN, x))
    return select(good, copysign(_narrow(log1p_64(x.cast("f64"))), x), special)


def exp2(x: Scalar) -> Scalar:
    """Return 2 to the power of x."""
    return _narrow(exp64(x.cast("f64") * math.log(2.0)))


def expm1(x: Scalar) -> Scalar:
    """exp(x) - 1."""
    return copysign(_narrow(expm1_64(x.cast("f64"))), x)


def sinh(x: Scalar) -> Scalar:
    """The hyperbolic sine."""
    t = expm1_64(absolute(x).cast("f64"))
    return odd(x, _narrow(0.5 * (t + t / (t + 1.0))))


def cosh(x: Scalar) -> Scalar:
    """The hyperbolic cosine."""
    t = exp64(absolute(x).cast("f64"))
    return _narrow(0.5 * (t + 1.0 / t))


def asinh(x: Scalar) -> Scalar:
    """The inverse hyperbolic sine."""
    t = absolute(x).cast("f64")
    result = log1p_64(t + t * t / (1.0 + sqrt(1.0 + t * t)))
    return select(absolute(x) < INFINITY, odd(x, _narrow(result)), x)


def acosh(x: Scalar) -> Scalar:
    """The inverse hyperbolic cosine."""
    less = x.cast("f64") - 1.0
    result = log1p_64(less + sqrt(less * (less + 2.0)))
    return select((x >= 1.0) & (x < INFINITY), _narrow(result), select(x < 1.0, NAN, x))


def atanh(x: Scalar) -> Scalar:
    """The inverse hyperbolic tangent."""
    t = absolute(x).cast("f64")
    result = 0.5 * log1p_64((t + t) / (1.0 - t))
    special = select(absolute(x).equal(1.0), copysign(x.of(INFINITY), x), NAN)
    return select(absolute(x) < 1.0, odd(x, _narrow(result)), special)


def cbrt(x: Scalar) -> Scalar:
    """The cube root."""
    root = exp64(log64(absolute(x).cast("f64")) * (1.0 / 3.0))
    good = (absolute(x) > 0.0) & (absolute(x) < INFINITY)
    return select(good, copysign(_narrow(root), x), x)


def powf(x: Scalar, y: Scalar) -> Scalar:
    """Return x to the power of y."""
    t = absolute(x)
    good = (t > 0.0) & (t < INFINITY)
    special = select(t.equal(0.0), -INFINITY, t.cast("f64"))  # log of 0, of infinity, of a NaN
    magnitude = _narrow(exp64(y.cast("f64") * select(good, log64(t.cast("f64")), special)))
    whole = trunc(y).equal(y)
    half = y * 0.5
    negative = bits(x) < 0
    signed = select(negative & whole & trunc(half).differs(half), -magnitude, magnitude)
    result = select((x < 0.0) & (x > -INFINITY) & ~whole, NAN, signed)
    one = y.equal(0.0) | x.equal(1.0) | (x.equal(-1.0) & absolute(y).equal(INFINITY))
    return select(one, 1.0, result)
