"""The results of kernel ops that walk, order or scatter elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from aicf_mlir.errors import VerifyError
from aicf_mlir.interpreters.call import Call, Meaning
from aicf_mlir.interpreters.numerics import Array


def _argsort(call: Call) -> Sequence[Array]:
    x = call["x"]
    if call.flag("descending"):  # the last of equal ones first, then all from the end
        places = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        places = np.argsort(x, axis=-1, kind="stable")
    first = call.attr("first", 0)
    return [places[..., first : first + call.attr("count", 0)]]


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


def _scaled(factor: Array, x: Array) -> Array:
    """The product, 0 where x is."""
    with np.errstate(invalid="ignore"):
        return np.where(x == 0, x, factor * x)


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
        case "exp_linear":
            factor = np.exp(np.moveaxis(call["factor"], dim, 0)[turn])
            y = _walked(x, lambda before, i: x[i] + (_scaled(factor[i], before) if i else 0.0))
        case "segment_sum":
            factor = np.moveaxis(call["factor"], dim, 0)[turn]
            y = _walked(x, lambda before, i: x[i] + np.where(factor[i] == 0, 0.0, before if i else 0.0))
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
    if call.has("at"):
        (x,), (index,), (src,) = (call.inputs[name] for name in ("x", "index", "src"))
        if index.dtype == np.int32 and np.any(np.diff(index) < 0):
            raise VerifyError("scatter_add: expected an index of i32 that ascends, as sort_rows gives it")
        index, places = _that_have_a_row(index, call["at"], len(src))
        return [_scatter(x, index, src[places], kind, include_self)]
    each = zip(call.inputs["x"], call.inputs["index"], call.inputs["src"], strict=True)
    return [_scatter(x, index, src, kind, include_self) for x, index, src in each]


def _that_have_a_row(index: Array, at: Array, rows: int) -> tuple[Array, Array]:
    """The index and the places, the nearest ones of a src with this number of rows; none of a src without rows."""
    there = slice(None) if rows else slice(0)
    return index[there], np.clip(at[there], 0, max(rows - 1, 0))


def _sort_rows(call: Call) -> Sequence[Array]:
    index, rows, source_rows = call["index"], call.attr("rows", 0), call.attr("source_rows", 0)
    at = call["at"] if call.has("at") else np.arange(len(index))
    inside = (index >= 0) & (index < rows) & (source_rows > 0)
    keys, places = np.where(inside, index, rows), np.clip(at, 0, max(source_rows - 1, 0))
    order = np.argsort(keys, kind="stable")
    return [keys[order].astype(np.int32), places[order].astype(np.int32)]


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
    "sort_rows": _sort_rows,
    "scatter_rows": lambda call: _scatters(call, call.attr("kind", "last")),
}
