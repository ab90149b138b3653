"""Rounding to integers by arithmetic: older processors have no instruction for it, and LLVM would call a library."""

from __future__ import annotations

from aicf_mlir.codegen.functions.polynomial import MANTISSA
from aicf_mlir.ir.formula import Scalar, absolute, copysign, select


def _whole(x: Scalar, rounded: Scalar) -> Scalar:
    """`rounded` with the sign of x; x itself if it has no fraction, is infinite or a NaN."""
    return select(absolute(x) < 2.0 ** MANTISSA[x.type], copysign(rounded, x), x)


def _nearest(x: Scalar) -> Scalar:
    """The nearest integer of a number that is not negative and below 2^23 (f32) or 2^52 (f64), ties to even."""
    return (x + 2.0 ** MANTISSA[x.type]) - 2.0 ** MANTISSA[x.type]


def roundeven(x: Scalar) -> Scalar:
    """The nearest integer, ties to even."""
    return _whole(x, _nearest(absolute(x)))


def trunc(x: Scalar) -> Scalar:
    """The integer part."""
    t = absolute(x)
    near = _nearest(t)
    return _whole(x, select(near > t, near - 1.0, near))


def round(x: Scalar) -> Scalar:
    """The nearest integer, ties away from zero."""
    t = absolute(x)
    near = _nearest(t)
    down = select(near > t, near - 1.0, near)
    return _whole(x, select(t - down < 0.5, down, down + 1.0))


def floor(x: Scalar) -> Scalar:
    """The largest integer that is not larger."""
    near = roundeven(x)
    return _whole(x, select(near > x, near - 1.0, near))


def ceil(x: Scalar) -> Scalar:
    """The smallest integer that is not smaller."""
    near = roundeven(x)
    return _whole(x, select(near < x, near + 1.0, near))


def rsqrt(x: Scalar) -> Scalar:
    """1 / sqrt(x), each rounded once."""
    return 1.0 / x.apply("math.sqrt")
