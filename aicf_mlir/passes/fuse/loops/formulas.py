"""What the prebuilt elementwise kernels compute, as formulas: by the name of the op."""

from __future__ import annotations

from collections.abc import Callable

from aicf_mlir.ir import formula as f
from aicf_mlir.ir.formula import Scalar

SQRT_2_OVER_PI, CUBIC = 0.7978845608028654, 0.044715
INVERSE_SQRT_2PI = 0.3989422804014327


def _sigmoid(x: Scalar) -> Scalar:
    return 1.0 / (1.0 + f.exp(-x))


def _relu_grad(dy: Scalar, y: Scalar) -> Scalar:
    return f.select(y <= 0.0, 0.0, dy)


def _gelu(x: Scalar) -> Scalar:
    return 0.5 * x * (1.0 + f.erf(x * f.SQRT_HALF))


def _gelu_grad(dy: Scalar, x: Scalar) -> Scalar:
    density = f.exp(-0.5 * x * x) * INVERSE_SQRT_2PI
    return dy * (0.5 * (1.0 + f.erf(x * f.SQRT_HALF)) + x * density)


def _gelu_tanh(x: Scalar) -> Scalar:
    return 0.5 * x * (1.0 + f.tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x)))


def _gelu_tanh_grad(dy: Scalar, x: Scalar) -> Scalar:
    inner = f.tanh(SQRT_2_OVER_PI * (x + CUBIC * x * x * x))
    slope = SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * x * x)
    return dy * (0.5 * (1.0 + inner) + 0.5 * x * (1.0 - inner * inner) * slope)


def _silu_grad(dy: Scalar, x: Scalar) -> Scalar:
    s = _sigmoid(x)
    return dy * s * (1.0 + x * (1.0 - s))


def _relu(x: Scalar) -> Scalar:
    return f.maximum(x, 0.0)


def _silu(x: Scalar) -> Scalar:
    return x * _sigmoid(x)


def _tanh_grad(dy: Scalar, y: Scalar) -> Scalar:
    return dy * (1.0 - y * y)


def _sigmoid_grad(dy: Scalar, y: Scalar) -> Scalar:
    return dy * (y * (1.0 - y))


FORMULAS: dict[str, Callable[..., Scalar]] = {
    "add": Scalar.__add__,
    "sub": Scalar.__sub__,
    "mul": Scalar.__mul__,
    "div": Scalar.__truediv__,
    "neg": Scalar.__neg__,
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "tanh": f.tanh,
    "sigmoid": _sigmoid,
    "relu_bwd": _relu_grad,
    "gelu_bwd": _gelu_grad,
    "gelu_tanh_bwd": _gelu_tanh_grad,
    "silu_bwd": _silu_grad,
    "tanh_bwd": _tanh_grad,
    "sigmoid_bwd": _sigmoid_grad,
    "bias_add": Scalar.__add__,
}


def _softmax(x: Scalar) -> Scalar:
    e = f.exp(x - f.row_max(x))
    return e / f.row_sum(e)


def _softmax_grad(dy: Scalar, y: Scalar) -> Scalar:
    return y * (dy - f.row_sum(dy * y))


ROWS: dict[str, Callable[..., Scalar]] = {"softmax": _softmax, "softmax_grad": _softmax_grad}
"""Of the last dimension."""
