"""What the convolutions compute, in NumPy: for each position of the windows one product over channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from aicf_mlir.dialects.nn.window_relation import Windows
from aicf_mlir.interpreters.call import Call, Meaning
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.windows import pairs

ALL = slice(None)


def _channels_first(call: Call, x: Array) -> Array:
    return np.moveaxis(x, -1, 1) if call.flag("channels_last") else x


def _convolution(kind: str, call: Call) -> Sequence[Array]:
    given = {name: _channels_first(call, call[name]) for name in call.inputs}
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
    for position, elements, having in pairs(windows, x.shape[2:], y.shape[2:]):
        for group in range(groups):
            of_y, of_x = (
                slice(group * outputs, (group + 1) * outputs),
                slice(group * channels, (group + 1) * channels),
            )
            here, there = (ALL, of_x, *elements), (ALL, of_y, *having)
            weights = (of_y, ALL, *position)
            if kind == "y":
                y[there] += np.einsum("nc...,oc->no...", x[here], w[weights])
            elif kind == "dx":
                x[here] += np.einsum("no...,oc->nc...", y[there], w[weights])
            else:
                a, b = x[here].reshape(len(x), channels, -1), y[there].reshape(len(x), outputs, -1)
                w[weights] += np.einsum("ncs,nos->oc", a, b)
    result = {"y": y, "dx": x, "dw": w}[kind]
    return [np.moveaxis(result, 1, -1) if call.flag("channels_last") else result]


MEANINGS: Mapping[str, Meaning] = {
    "convolution": partial(_convolution, "y"),
    "convolution_input_grad": partial(_convolution, "dx"),
    "convolution_weight_grad": partial(_convolution, "dw"),
}
