"""What the convolutions compute, in NumPy: for each position of the windows one product over channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from aicf_mlir.dialects.nn.window_relation import Windows
from aicf_mlir.interpreters.activations import ACTIVATIONS
from aicf_mlir.interpreters.call import Call, Meaning
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.windows import pairs

ALL = slice(None)


def _channels_first(call: Call, x: Array) -> Array:
    return np.moveaxis(x, -1, 1) if call.flag("channels_last") else x


def _convolution(kind: str, call: Call) -> Sequence[Array]:
    given = {name: _channels_first(call, call[name]) for name in ("x", "w", "dy") if call.inputs.get(name)}
    size, groups = tuple(call.attr("size", ())), call.attr("groups", 1)
    x, w, y = given.get("x"), given.get("w"), given.get("dy")
    if y is None:
        assert x is not None and w is not None
        y = np.zeros((len(x), len(w), *size))
    elif x is None:
        assert w is not None
        x = np.zeros((len(y), w.shape[1] * groups, *size))
    else:
        w = np.zeros((y.shape[1], x.shape[1] // groups, *size))
    assert x is not None and w is not None
    windows = Windows.of(
        w.shape[2:], call.attr("stride", ()), call.attr("dilation", ()), call.attr("low", ())
    )
    outputs, channels = len(w) // groups, w.shape[1]
    is_wide = outputs * channels > 1  # products of matrices are slower for a depthwise one
    multiply = partial(np.einsum, optimize=is_wide)
    for position, elements, having in pairs(windows, x.shape[2:], y.shape[2:]):
        for group in range(groups):
            of_y, of_x = (
                slice(group * outputs, (group + 1) * outputs),
                slice(group * channels, (group + 1) * channels),
            )
            here, there = (ALL, of_x, *elements), (ALL, of_y, *having)
            weights = (of_y, ALL, *position)
            if kind == "y":
                y[there] += multiply("nc...,oc->no...", x[here], w[weights])
            elif kind == "dx":
                x[here] += multiply("no...,oc->nc...", y[there], w[weights])
            else:
                a, b = x[here].reshape(len(x), channels, -1), y[there].reshape(len(x), outputs, -1)
                w[weights] += multiply("ncs,nos->oc", a, b)
    result = {"y": y, "dx": x, "dw": w}[kind]
    if call.arithmetic.pads:
        result += _of_paddings(kind, windows, x, w, y)
    if call.has("bias"):
        result += call["bias"].reshape(-1, *[1] * len(size))
    if call.attr("act", "none") == "relu":
        result = ACTIVATIONS["relu"](result)
    return [np.moveaxis(result, 1, -1) if call.flag("channels_last") else result]


def _of_paddings(kind: str, windows: Windows, x: Array, w: Array, y: Array) -> Array:
    """What the zeros around x, or around y for the gradient of x, add: a NaN where they meet what is not finite."""
    factor, result = (y, w) if kind == "dw" else (w, x if kind == "dx" else y)
    added = np.zeros(result.shape)
    if np.isfinite(factor).all():
        return added
    wrong = np.where(np.isfinite(factor), 0.0, np.nan)
    for position, elements, having in pairs(windows, x.shape[2:], y.shape[2:]):
        beyond = np.ones((x if kind == "dx" else y).shape[2:], bool)
        beyond[elements if kind == "dx" else having] = False
        at = (ALL, ALL, *position)
        if kind == "dw":
            added[at] += wrong[:, :, beyond].sum(axis=(0, 2))[:, None]
        elif kind == "y":
            added[:, :, beyond] += wrong[at].sum(axis=1)[:, None]
        else:
            groups = x.shape[1] // w.shape[1]
            added[:, :, beyond] += wrong[at].reshape(groups, -1, w.shape[1]).sum(axis=1).reshape(-1, 1)
    return added


MEANINGS: Mapping[str, Meaning] = {
    "convolution": partial(_convolution, "y"),
    "convolution_input_grad": partial(_convolution, "dx"),
    "convolution_weight_grad": partial(_convolution, "dw"),
}
