"""Formulas of the prebuilt elementwise kernels: those of nn, by the name of the kernel op."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aicf_mlir.dialects.nn.gradient_rows import gradients
from aicf_mlir.dialects.nn.rows import ROWS as POINTWISE
from aicf_mlir.dialects.nn.rows import Pointwise
from aicf_mlir.dialects.nn.softmax import softmax, softmax_gradient
from aicf_mlir.ir.formula import Scalar

Formula = Callable[..., Scalar]

ARITHMETIC = ("add", "sub", "mul", "div", "neg")
ACTIVATIONS = {"relu": {}, "silu": {}, "tanh": {}, "sigmoid": {}, "gelu": {"approximate": "none"}}


def _gradient(name: str) -> Formula:
    """The gradient formula, of dy and the values that forward saved."""
    (row,) = gradients(POINTWISE[name])
    assert isinstance(row, Pointwise)
    return row.formula


FORMULAS: dict[str, Formula] = {
    **{name: POINTWISE[name].formula for name in ARITHMETIC},
    **{name: partial(POINTWISE[name].formula, **given) for name, given in ACTIVATIONS.items()},
    **{f"{name}_bwd": partial(_gradient(name), **given) for name, given in ACTIVATIONS.items()},
    "gelu_tanh": partial(POINTWISE["gelu"].formula, approximate="tanh"),
    "gelu_tanh_bwd": partial(_gradient("gelu"), approximate="tanh"),
    "bias_add": POINTWISE["add"].formula,
}

ROWS: dict[str, Formula] = {"softmax": softmax, "softmax_grad": softmax_gradient}
"""The formulas over the last dimension."""
