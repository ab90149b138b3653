"""Activations and their derivatives on float64 arrays. NaN passes through all of them, relu included."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aicf_mlir.interpreters.numerics import Array, erfc

_TANH_SCALE = math.sqrt(2.0 / math.pi)
_TANH_CUBIC = 0.044715


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def gelu(x: Array) -> Array:
    """Gelu: x · Φ(x), with Φ the distribution function of the standard normal."""
    return 0.5 * x * erfc(-x / math.sqrt(2.0))


def gelu_tanh(x: Array) -> Array:
    """The tanh approximation of gelu."""
    return 0.5 * x * (1.0 + np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x**3)))


def gelu_bwd(dy: Array, x: Array) -> Array:
    """The derivative of gelu: dy · (Φ(x) + x · φ(x))."""
    density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    return dy * (0.5 * erfc(-x / math.sqrt(2.0)) + x * density)


def gelu_tanh_bwd(dy: Array, x: Array) -> Array:
    """The derivative of gelu_tanh."""
    inner = np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x**3))
    slope = _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBIC * x * x)
    return dy * (0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner * inner) * slope)


def silu_bwd(dy: Array, x: Array) -> Array:
    """The derivative of x · sigmoid(x)."""
    s = sigmoid(x)
    return dy * s * (1.0 + x * (1.0 - s))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
}
"""The activations by name: y from x."""

DERIVATIVES: dict[str, Callable[[Array, Array], Array]] = {
    "relu": lambda dy, y: np.where(y <= 0.0, 0.0, dy),
    "gelu": gelu_bwd,
    "gelu_tanh": gelu_tanh_bwd,
    "silu": silu_bwd,
    "tanh": lambda dy, y: dy * (1.0 - y * y),
    "sigmoid": lambda dy, y: dy * y * (1.0 - y),
}
"""The derivative of each activation by name: dx from dy and the value that forward saved, y (relu, tanh, sigmoid) or x (the
others).
"""
