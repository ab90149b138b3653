"""Rows of functions of one number."""

from __future__ import annotations

import math

from aicf_mlir.dialects.nn.rows.row import NUMBERS, Row
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.formula import Scalar, absolute, select


def sign(x: Scalar) -> Scalar:
    """0 for a NaN, as in torch."""
    return select(x > 0, 1, select(x < 0, x.of(-1), 0))


def sinc(x: Scalar) -> Scalar:
    """sin(πx) / (πx)."""
    turned = x * math.pi
    return select(x.equal(0.0), 1.0, f.sin(turned) / turned)


def sinc_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """0 at 0."""
    turned = x * math.pi
    return select(x.equal(0.0), 0.0, g * ((f.cos(turned) - y) / x))


ROWS = (
    Row("abs", "|x|.", absolute, takes=NUMBERS, gradient=lambda g, x, y: g * sign(x)),
    Row("sign", "-1, 0 or 1; 0 for a NaN.", sign, takes=NUMBERS),
    Row("reciprocal", "1 / x.", lambda x: 1.0 / x, gradient=lambda g, x, y: -(g * (y * y))),
    Row("sqrt", "The square root.", f.sqrt, gradient=lambda g, x, y: g / (2.0 * y)),
    Row(
        "deviation",
        "The square root of a variance: its derivative at 0 is 0, as that of torch's standard deviation.",
        f.sqrt,
        gradient=lambda g, x, y: select(y.equal(0.0), 0.0, g / (2.0 * y)),
    ),
    Row("rsqrt", "1 / the square root.", f.rsqrt, gradient=lambda g, x, y: -0.5 * g * (y * y * y)),
    Row("exp", "e to the power of x.", f.exp, gradient=lambda g, x, y: g * y),
    Row("exp2", "2 to the power of x.", f.exp2, gradient=lambda g, x, y: g * y * math.log(2.0)),
    Row("expm1", "exp(x) - 1, also near 0.", f.expm1, gradient=lambda g, x, y: g * (y + 1.0)),
    Row("log", "The natural logarithm.", f.log),
    Row("log2", "The logarithm to base 2.", f.log2),
    Row("log10", "The logarithm to base 10.", f.log10),
    Row("log1p", "log(1 + x), also near 0.", f.log1p),
    Row("sin", "The sine.", f.sin),
    Row("cos", "The cosine.", f.cos),
    Row("tan", "The tangent.", f.tan, gradient=lambda g, x, y: g * (y * y + 1.0)),
    Row("asin", "The inverse of the sine.", f.asin),
    Row("acos", "The inverse of the cosine.", f.acos),
    Row("atan", "The inverse of the tangent.", f.atan),
    Row("atan2", "The angle of the point (x, y).", f.atan2, ("y", "x")),
    Row("sinh", "The hyperbolic sine.", f.sinh),
    Row("cosh", "The hyperbolic cosine.", f.cosh),
    Row("asinh", "The inverse of the hyperbolic sine.", f.asinh),
    Row("acosh", "The inverse of the hyperbolic cosine.", f.acosh),
    Row("atanh", "The inverse of the hyperbolic tangent.", f.atanh),
    Row("erf", "The error function.", f.erf),
    Row("floor", "The largest whole number that is not larger.", f.floor),
    Row("ceil", "The smallest whole number that is not smaller.", f.ceil),
    Row("round", "The nearest whole number, halves to the even one.", f.roundeven),
    Row("trunc", "The whole number towards zero.", f.trunc),
    Row("copysign", "|x| with the sign of y.", f.copysign, ("x", "y")),
    Row(
        "zero_nan",
        "x, and 0 at a NaN.",
        lambda x: select(x.is_nan(), 0.0, x),
        gradient=lambda g, x, y: g * select(x.is_nan(), x.of(0.0), 1.0),
    ),
    Row(
        "entr",
        "-x * log(x), 0 at 0, -infinity below.",
        lambda x: select(x > 0.0, -x * f.log(x), select(x.equal(0.0), 0.0, select(x.is_nan(), x, -math.inf))),
        gradient=lambda g, x, y: g * (-1.0 - f.log(x)),
    ),
    Row("sinc", "sin(πx) / (πx), and 1 at 0.", sinc, gradient=sinc_gradient),
)
