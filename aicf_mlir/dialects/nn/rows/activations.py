"""Rows of activations and of losses for each element, with torch's results at every point."""

from __future__ import annotations

import math

from aicf_mlir.dialects.nn.rows.normal import normal_cdf, normal_power
from aicf_mlir.dialects.nn.rows.row import NUMBERS, Pointwise
from aicf_mlir.ir.formula import (
    SQRT_HALF,
    Scalar,
    absolute,
    erf,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    select,
    tanh,
)

TANH_SCALE = math.sqrt(2.0 / math.pi)
TANH_CUBIC = 0.044715


def logistic(x: Scalar) -> Scalar:
    """1 / (1 + exp(-x)): exact at both ends."""
    return 1.0 / (exp(-x) + 1.0)


def gelu(x: Scalar, approximate: str) -> Scalar:
    """The product x · Φ(x), with Φ the distribution function of the standard normal, or an approximation of it."""
    if approximate == "tanh":
        return 0.5 * x * (tanh(TANH_SCALE * (x + TANH_CUBIC * (x * x * x))) + 1.0)
    return x * distribution(x)


def distribution(x: Scalar) -> Scalar:
    """Φ(x)."""
    return 0.5 * (erf(x * SQRT_HALF) + 1.0) if x.type == "f64" else normal_cdf(x)


def gelu_gradient(g: Scalar, x: Scalar, y: Scalar, approximate: str) -> Scalar:
    """Φ(x) + x · φ(x), or that of the approximation."""
    if approximate == "tanh":
        inner = tanh(TANH_SCALE * (x + TANH_CUBIC * (x * x * x)))
        bounded = minimum(absolute(x), 1e9)  # its square is finite, and beyond 1 - inner² is 0
        slope = TANH_SCALE * (3.0 * TANH_CUBIC * (bounded * bounded) + 1.0)
        return g * (0.5 * (inner + 1.0) + 0.5 * x * (1.0 - inner * inner) * slope)
    return g * (distribution(x) + x * (normal_power(x) * (1.0 / math.sqrt(2.0 * math.pi))))


def silu_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient factor s · (1 + x · (1 - s)) with s = sigmoid(x)."""
    s = logistic(x)
    return g * s * (x * (1.0 - s) + 1.0)


def softplus(x: Scalar, beta: float, threshold: float) -> Scalar:
    """Beyond the threshold x itself."""
    scaled = x * beta
    return select(scaled > threshold, x, log1p(exp(scaled)) / beta)


def softplus_gradient(g: Scalar, x: Scalar, y: Scalar, beta: float, threshold: float) -> Scalar:
    """The logistic function, and 1 beyond the threshold."""
    scaled = x * beta
    return select(scaled > threshold, g, g * logistic(scaled))


def mish_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The product rule with tanh(softplus(x))."""
    inner = tanh(log1p(exp(x)))
    return g * (inner + x * logistic(x) * (1.0 - inner * inner))


def log_sigmoid_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """1 / (1 + exp(x)), by an exponential that does not overflow."""
    small = exp(-absolute(x))
    return g * (select(x < 0.0, 1.0, small) / (small + 1.0))


def hardswish_gradient(g: Scalar, x: Scalar, y: Scalar) -> Scalar:
    """The gradient factor x / 3 + 1/2 between -3 and 3; at these points it is already 0 and 1."""
    return select(x <= -3.0, 0.0, select(x < 3.0, g * (x / 3.0 + 0.5), g))


def elu(x: Scalar, alpha: float, scale: float, input_scale: float) -> Scalar:
    """Selu is a scale of it."""
    return select(x > 0.0, x * scale, expm1(x * input_scale) * (alpha * scale))


def elu_gradient(g: Scalar, x: Scalar, y: Scalar, alpha: float, scale: float, input_scale: float) -> Scalar:
    """The gradient of elu; at 0 it is that of the exponential; a NaN lets g pass."""
    return select(x <= 0.0, g * exp(x * input_scale) * (alpha * scale * input_scale), g * scale)


def leaky(g: Scalar, x: Scalar, y: Scalar, negative_slope: float) -> Scalar:
    """The slope also at 0."""
    return select(x > 0.0, g, g * negative_slope)


def logit(x: Scalar, eps: float) -> Scalar:
    """The logit of x, clamped to eps and 1 - eps if eps is not negative."""
    p = x if eps < 0 else minimum(maximum(x, eps), 1.0 - eps)
    return log(p / (1.0 - p))


def logit_gradient(g: Scalar, x: Scalar, y: Scalar, eps: float) -> Scalar:
    """The gradient of logit; outside of its bounds 0, or NaN if the bounds are only 0 and 1."""
    low = max(eps, 0.0)
    outside = (x < low) | (x > 1.0 - low)
    return select(outside, math.nan if eps < 0 else 0.0, g / (x * (1.0 - x)))


def shrinks(x: Scalar, lambd: float) -> Scalar:
    """True if x is between -lambd and lambd, which torch compares as a number of x's type."""
    bound = x.number(lambd)
    return (x >= -bound) & (x <= bound)


def beyond(inner: Scalar, x: Scalar, bound: float, outer: Scalar) -> Scalar:
    """`outer` with the sign of x where x is beyond the bound."""
    return select(x > bound, outer, select(x < -bound, -outer, inner))


def binary_cross_entropy(x: Scalar, target: Scalar) -> Scalar:
    """Logarithms of at least -100, as in torch."""
    return (target - 1.0) * maximum(log1p(-x), -100.0) - target * maximum(log(x), -100.0)


def binary_cross_entropy_gradient(g: Scalar, x: Scalar, target: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
    """Finite at probabilities of 0 and 1."""
    return g * (x - target) / maximum((1.0 - x) * x, 1e-12), g * (log1p(-x) - log(x))


ROWS = (
    Pointwise(
        "relu",
        "max(x, 0); NaN stays NaN.",
        lambda x: maximum(x, 0),
        takes=NUMBERS,
        gradient=lambda g, x, y: select(y <= 0, 0, g),
    ),
    Pointwise(
        "hinge",
        "x where it is positive, else 0, at a NaN too.",
        lambda x: select(x > 0.0, x, 0.0),
        gradient=lambda g, x, y: g * select(x > 0.0, x.of(1.0), 0.0),
    ),
    Pointwise(
        "gelu",
        "x * Phi(x) by the error function, or torch's tanh approximation of it.",
        gelu,
        parameters={"approximate": "none"},
        words={"approximate": ("none", "tanh")},
        gradient=gelu_gradient,
    ),
    Pointwise("silu", "x * sigmoid(x).", lambda x: x / (exp(-x) + 1.0), gradient=silu_gradient),
    Pointwise("tanh", "The hyperbolic tangent.", tanh, gradient=lambda g, x, y: g * (1.0 - y * y)),
    Pointwise("sigmoid", "1 / (1 + exp(-x)).", logistic, gradient=lambda g, x, y: g * y * (1.0 - y)),
    Pointwise(
        "log_sigmoid",
        "log(sigmoid(x)).",
        lambda x: minimum(x, 0.0) - log1p(exp(-absolute(x))),
        gradient=log_sigmoid_gradient,
    ),
    Pointwise(
        "softplus",
        "log(1 + exp(beta * x)) / beta, and x where beta * x > threshold.",
        softplus,
        parameters={"beta": 1.0, "threshold": 20.0},
        gradient=softplus_gradient,
    ),
    Pointwise(
        "mish", "x * tanh(log(1 + exp(x))).", lambda x: x * tanh(log1p(exp(x))), gradient=mish_gradient
    ),
    Pointwise(
        "hardsigmoid",
        "x / 6 + 1/2, between 0 and 1.",
        lambda x: minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
        gradient=lambda g, x, y: select((x > -3.0) & (x < 3.0), g / 6.0, 0.0),
    ),
    Pointwise(
        "hardswish",
        "x times hardsigmoid(x).",
        lambda x: x * minimum(maximum(x + 3.0, 0.0), 6.0) / 6.0,
        gradient=hardswish_gradient,
    ),
    Pointwise(
        "hardtanh",
        "x between `min_val` and `max_val`; no gradient passes at the bounds.",
        lambda x, min_val, max_val: minimum(maximum(x, min_val), max_val),
        parameters={"min_val": -1.0, "max_val": 1.0},
        gradient=lambda g, x, y, min_val, max_val: select((x <= min_val) | (x >= max_val), 0.0, g),
    ),
    Pointwise(
        "leaky_relu",
        "x, or negative_slope * x where x is not positive.",
        lambda x, negative_slope: select(x > 0.0, x, x * negative_slope),
        parameters={"negative_slope": 0.01},
        gradient=leaky,
    ),
    Pointwise(
        "prelu",
        "x, or weight * x where x is not positive.",
        lambda x, weight: select(x > 0.0, x, weight * x),
        ("x", "weight"),
        gradient=lambda g, x, weight, y: (select(x > 0.0, g, weight * g), select(x > 0.0, 0.0, x * g)),
    ),
    Pointwise(
        "elu",
        "scale * x, or scale * alpha * (exp(input_scale * x) - 1) where x is not positive.",
        elu,
        parameters={"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
        gradient=elu_gradient,
    ),
    Pointwise(
        "celu",
        "x, or alpha * (exp(x / alpha) - 1) where x is not positive.",
        lambda x, alpha: select(x > 0.0, x, expm1(x / alpha) * alpha),
        parameters={"alpha": 1.0},
        gradient=lambda g, x, y, alpha: select(x <= 0.0, g * exp(x / alpha), g),
    ),
    Pointwise(
        "hardshrink",
        "x, and 0 between -lambd and lambd.",
        lambda x, lambd: select(shrinks(x, lambd), 0.0, x),
        parameters={"lambd": 0.5},
        gradient=lambda g, x, y, lambd: select(shrinks(x, lambd), 0.0, g),
    ),
    Pointwise(
        "softshrink",
        "x nearer to 0 by lambd, and 0 between -lambd and lambd.",
        lambda x, lambd: select(x > lambd, x - lambd, select(x < -lambd, x + lambd, x * 0.0)),
        parameters={"lambd": 0.5},
        gradient=lambda g, x, y, lambd: select(shrinks(x, lambd), 0.0, g),
    ),
    Pointwise(
        "threshold",
        "x where it is larger than the threshold, else value.",
        lambda x, threshold, value: select(x <= threshold, value, x),
        parameters={"threshold": 0.0, "value": 0.0},
        gradient=lambda g, x, y, threshold, value: select(x <= threshold, 0.0, g),
    ),
    Pointwise(
        "logit",
        "log(x / (1 - x)), of x between eps and 1 - eps; a negative eps stands for no bounds.",
        logit,
        parameters={"eps": -1.0},
        gradient=logit_gradient,
    ),
    Pointwise(
        "huber",
        "x * x / 2, and delta * (|x| - delta / 2) beyond delta.",
        lambda x, delta: select(absolute(x) < delta, 0.5 * x * x, (absolute(x) - 0.5 * delta) * delta),
        parameters={"delta": 1.0},
        gradient=lambda g, x, y, delta: beyond(g * x, x, delta, g * delta),
    ),
    Pointwise(
        "smooth_l1",
        "x * x / (2 * beta), and |x| - beta / 2 beyond beta.",
        lambda x, beta: select(absolute(x) < beta, 0.5 * x * x / beta, absolute(x) - 0.5 * beta),
        parameters={"beta": 1.0},
        gradient=lambda g, x, y, beta: beyond(g * x / beta, x, beta, g),
    ),
    Pointwise(
        "binary_cross_entropy",
        "-(target * log(x) + (1 - target) * log(1 - x)), of logarithms not below -100.",
        binary_cross_entropy,
        ("x", "target"),
        gradient=binary_cross_entropy_gradient,
    ),
)
