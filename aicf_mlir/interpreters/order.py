"""The results of kernel ops that walk, order or scatter elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from aicf_mlir.interpreters.call import Call, Meaning
from aicf_mlir.interpreters.numerics import Array


def _argsort(call: Call) -> Sequence[Array]:
    x = call["x"]
    if call.flag("descending"):  # the last of equal ones first, then all from the end
        places = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        places = np.argsort(x, axis=-1, kind="stable")
    return [places[..., : call.attr("count", 0)]]


def _walked(x: Array, step: Callable[[Array, int], Array]) -> Array:
    """The results of the steps along the first axis; each takes the result in front of it."""
    found = np.empty_like(x)
    for i in range(len(x)):
        found[i] = step(found[i - 1], i)
    return found


def _places(x: Array, beyond: Callable[[Array, Array], Array]) -> Array:
    """The place of the last element that is an extreme of those up to it along the first axis."""
    found = np.zeros(x.shape, np.int64)
    for i in range(1, len(x)):
        best = np.take_along_axis(x, found[i - 1 : i], 0)[0]
        found[i] = np.where(beyond(x[i], best) | np.isnan(x[i]), i, found[i - 1])
    return found


def _scan(call: Call) -> Sequence[Array]:
    dim, kind = call.attr("dim", 0), call.attr("kind", "")
    turn = slice(None, None, -1 if call.flag("reverse") else 1)
    x = np.moveaxis(call["x"], dim, 0)[turn]
    match kind:
        case "sum":
            y = np.cumsum(x, axis=0)
        case "prod":
            y = np.cumprod(x, axis=0)
        case "logaddexp":
            y = np.logaddexp.accumulate(x, axis=0) if len(x) else x
        case "linear":
            factor = np.moveaxis(call["factor"], dim, 0)[turn]
            y = _walked(x, lambda before, i: x[i] + (factor[i] * before if i else factor[i] * 0.0))
        case _:
            y = _places(x, np.greater_equal if kind == "argmax" else np.less_equal)
            y = len(x) - 1 - y if call.flag("reverse") else y
    return [np.moveaxis(y[turn], 0, dim)]


REDUCTIONS: Mapping[str, np.ufunc] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatters(call: Call, kind: str) -> Sequence[Array]:
    """Each matrix x with rows of its src at the places of its index, or reduced there."""
    include_self = call.attr("include_self", True) is True
    each = zip(call.inputs["x"], call.inputs["index"], call.inputs["src"], strict=True)
    return [_scatter(x, index, src, kind, include_self) for x, index, src in each]


def _scatter(x: Array, index: Array, src: Array, kind: str, include_self: bool) -> Array:
    y = np.array(x)
    inside = (index >= 0) & (index < len(y))
    index, src = index[inside], src[inside]
    if kind == "last":
        for row, values in zip(index, src, strict=True):
            y[row] = values
        return y
    if not include_self:  # the first source is in its place
        rows, first = np.unique(index, return_index=True)
        y[rows] = src[first]
        rest = np.ones(len(index), bool)
        rest[first] = False
        index, src = index[rest], src[rest]
    REDUCTIONS[kind].at(y, index, src)
    return y


MEANINGS: Mapping[str, Meaning] = {
    "argsort": _argsort,
    "scan": _scan,
    "scatter_add": lambda call: _scatters(call, "sum"),
    "scatter_rows": lambda call: _scatters(call, call.attr("kind", "last")),
}
