"""Rows of functions of one number."""

from __future__ import annotations

import math
from functools import reduce

from aicf_mlir.dialects.nn.rows import normal
from aicf_mlir.dialects.nn.rows.row import NUMBERS, Pointwise
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.formula import Scalar, absolute, maximum, minimum, select


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


def magnitude(re: Scalar, im: Scalar) -> Scalar:
    """The root of re² + im², without overflow of the squares."""
    re, im = absolute(re), absolute(im)
    larger, smaller = maximum(re, im), minimum(re, im)
    ratio = select(larger.equal(0.0) | larger.equal(math.inf), 0.0, smaller / larger)
    found = larger * f.sqrt(ratio * ratio + 1.0)
    return select(re.equal(math.inf) | im.equal(math.inf), math.inf, found)


def magnitude_gradient(g: Scalar, re: Scalar, im: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """0 at 0, as all its derivatives; at infinity torch's quotient is none."""
    is_zero = y.equal(0.0)
    size = select(is_zero, 1.0, select(y.equal(math.inf), math.nan, y))
    return g * select(is_zero, 0.0, re / size), g * select(is_zero, 0.0, im / size)


ERFC_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
     8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
ERFC_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip
"""Numerators and denominators, of the highest power first: W. J. Cody, Rational Chebyshev Approximations for the Error
Function, Mathematics of Computation 23, 1969.
"""


def ratio_at(x: Scalar, polynomials: tuple[tuple[float, ...], tuple[float, ...]]) -> Scalar:
    """The quotient of two polynomials."""
    above, below = (
        reduce(lambda sum_, next_: sum_ * x + next_, each[1:], x.of(each[0])) for each in polynomials
    )
    return above / below


def erfc(x: Scalar) -> Scalar:
    """1 - erf(x), with all digits where that is nearly 0: exp(-x²) times a quotient, its exponent in two parts."""
    if x.type != "f64":
        return normal.erfc(x)
    size = absolute(x)
    middle, large = minimum(size, 4.0), maximum(size, 4.0)
    inverse = 1.0 / (large * large)
    tail = (1.0 / math.sqrt(math.pi) - inverse * ratio_at(inverse, ERFC_LARGE)) / large
    whole = f.trunc(minimum(size, 32.0) * 16.0) / 16.0
    power = f.exp(-(whole * whole)) * f.exp((whole - size) * (whole + size))
    found = power * select(size > 4.0, tail, ratio_at(middle, ERFC_MIDDLE))
    found = select(size > 30.0, 0.0, found)
    return select(size < 0.5, 1.0 - f.erf(x), select(x < 0.0, 2.0 - found, found))


ROWS = (
    Pointwise("abs", "|x|.", absolute, takes=NUMBERS, gradient=lambda g, x, y: g * sign(x)),
    Pointwise("sign", "-1, 0 or 1; 0 for a NaN.", sign, takes=NUMBERS),
    Pointwise("reciprocal", "1 / x.", lambda x: 1.0 / x, gradient=lambda g, x, y: -(g * (y * y))),
    Pointwise("sqrt", "The square root.", f.sqrt, gradient=lambda g, x, y: g / (2.0 * y)),
    Pointwise(
        "deviation",
        "The square root of a variance: its derivative at 0 is 0, as that of torch's standard deviation.",
        f.sqrt,
        gradient=lambda g, x, y: select(y.equal(0.0), 0.0, g / (2.0 * y)),
    ),
    Pointwise("rsqrt", "1 / the square root.", f.rsqrt, gradient=lambda g, x, y: -0.5 * g * (y * y * y)),
    Pointwise("exp", "e to the power of x.", f.exp, gradient=lambda g, x, y: g * y),
    Pointwise("exp2", "2 to the power of x.", f.exp2, gradient=lambda g, x, y: g * y * math.log(2.0)),
    Pointwise("expm1", "exp(x) - 1, also near 0.", f.expm1, gradient=lambda g, x, y: g * (y + 1.0)),
    Pointwise("log", "The natural logarithm.", f.log),
    Pointwise("log2", "The logarithm to base 2.", f.log2),
    Pointwise("log10", "The logarithm to base 10.", f.log10),
    Pointwise("log1p", "log(1 + x), also near 0.", f.log1p),
    Pointwise("sin", "The sine.", f.sin),
    Pointwise("cos", "The cosine.", f.cos),
    Pointwise("tan", "The tangent.", f.tan, gradient=lambda g, x, y: g * (y * y + 1.0)),
    Pointwise("asin", "The inverse of the sine.", f.asin),
    Pointwise("acos", "The inverse of the cosine.", f.acos),
    Pointwise("atan", "The inverse of the tangent.", f.atan),
    Pointwise("atan2", "The angle of the point (x, y).", f.atan2, ("y", "x")),
    Pointwise(
        "magnitude",
        "The absolute value of the complex number re + i·im; its derivative at 0 is 0.",
        magnitude,
        ("re", "im"),
        gradient=magnitude_gradient,
    ),
    Pointwise("sinh", "The hyperbolic sine.", f.sinh),
    Pointwise("cosh", "The hyperbolic cosine.", f.cosh),
    Pointwise("asinh", "The inverse of the hyperbolic sine.", f.asinh),
    Pointwise("acosh", "The inverse of the hyperbolic cosine.", f.acosh),
    Pointwise("atanh", "The inverse of the hyperbolic tangent.", f.atanh),
    Pointwise("erf", "The error function.", f.erf),
    Pointwise(
        "erfc",
        "1 - erf(x), with all digits where that is nearly 0.",
        erfc,
        gradient=lambda g, x, y: g * (-2.0 / math.sqrt(math.pi)) * f.exp(-(x * x)),
    ),
    Pointwise("floor", "The largest whole number that is not larger.", f.floor),
    Pointwise("ceil", "The smallest whole number that is not smaller.", f.ceil),
    Pointwise("round", "The nearest whole number, halves to the even one.", f.roundeven),
    Pointwise("trunc", "The whole number towards zero.", f.trunc),
    Pointwise("copysign", "|x| with the sign of y.", f.copysign, ("x", "y")),
    Pointwise(
        "zero_nan",
        "x, and 0 at a NaN.",
        lambda x: select(x.is_nan(), 0.0, x),
        gradient=lambda g, x, y: g * select(x.is_nan(), x.of(0.0), 1.0),
    ),
    Pointwise(
        "entr",
        "-x * log(x), 0 at 0, -infinity below.",
        lambda x: select(x > 0.0, -x * f.log(x), select(x.equal(0.0), 0.0, select(x.is_nan(), x, -math.inf))),
        gradient=lambda g, x, y: g * (-1.0 - f.log(x)),
    ),
    Pointwise("sinc", "sin(πx) / (πx), and 1 at 0.", sinc, gradient=sinc_gradient),
)
