"""What ops over windows compute, in NumPy: one position of the windows after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.windows import WindowedOp
from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.interpreters.runner import Meaning, Operands
from aicf_mlir.ir.tensor_op import shape_of

Indices = tuple[npt.NDArray[np.int64], ...]
"""For each spatial dimension so many as there are, to be combined."""


def pairs(
    windows: nn.Windows, sizes: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Indices, Indices]]:
    """For each position the elements of a tensor of `sizes` and their windows, as many of `counts` as have one there."""
    for position in np.ndindex(*windows.kernel):
        elements: list[npt.NDArray[np.int64]] = []
        having: list[npt.NDArray[np.int64]] = []
        for d, k in enumerate(position):
            window = np.arange(counts[d])
            at = window * windows.stride[d] + k * windows.dilation[d] - windows.low[d]
            element = at // windows.spread[d]
            there = (at % windows.spread[d] == 0) & (element >= 0) & (element < sizes[d])
            elements.append(element[there])
            having.append(window[there])
        yield position, np.ix_(*elements), np.ix_(*having)


def taken(op: WindowedOp, x: Array, outside: float) -> Array:
    """[*kernel, N, C, *size]: x at each position of each window."""
    found = np.full((*op.windows.kernel, *x.shape[:2], *op.sizes), outside, x.dtype)
    for position, elements, windows in pairs(op.windows, x.shape[2:], op.sizes):
        found[position][(slice(None), slice(None), *windows)] = x[(slice(None), slice(None), *elements)]
    return found


def inside(op: WindowedOp, x: Array, terms: Array) -> Array:
    """The terms [*kernel, N, F, own, *size] whose position has an element of x, and 0 for the others, whatever they are."""
    there = taken(op, np.ones((1, 1, *x.shape[2:])), 0) == 1
    return np.where(np.expand_dims(there, op.rank + 2), terms, 0)


def by_filter(op: WindowedOp, x: Array, filters: int, own: int) -> Array:
    """[*kernel, N, F, own, *size]: what each filter sees of x, the channels of its group."""
    found = taken(op, x, 0)
    shape, rank = found.shape, op.rank
    groups = shape[rank + 1] // own
    found = found.reshape(*shape[: rank + 1], groups, own, *shape[rank + 2 :])
    return np.repeat(found, filters // groups, axis=rank + 1)


def unfold(op: nn.UnfoldOp, operands: Operands) -> Array:
    """Each position of each window, 0 outside."""
    rank = op.rank
    return np.transpose(
        taken(op, operands[0], 0), (rank + 1, *range(rank), rank, *range(rank + 2, 2 * rank + 2))
    )


def fold(op: nn.FoldOp, operands: Operands) -> Array:
    """Each position of each window added where it was taken from."""
    (x,) = operands
    every = slice(None)
    result = np.zeros(shape_of(op.result))
    for position, elements, windows in pairs(op.windows, op.sizes, x.shape[op.rank + 2 :]):
        part = x[(every, *position)]
        result[(every, every, *elements)] += np.swapaxes(part, 0, 1)[(every, every, *windows)]
    return result


def window_sum(op: nn.WindowSumOp, operands: Operands) -> Array:
    """The sum over the positions; weighed, over the channels of a group too."""
    x, positions = operands[0], tuple(range(op.rank))
    if op.w is None:
        return np.sum(taken(op, x, 0), axis=positions)
    filters, own, *kernel = operands[1].shape
    w = np.moveaxis(operands[1], (0, 1), (-2, -1)).reshape(*kernel, 1, filters, own, *[1] * op.rank)
    return np.sum(inside(op, x, by_filter(op, x, filters, own) * w), axis=(*positions, op.rank + 2))


def window_product(op: nn.WindowProductOp, operands: Operands) -> Array:
    """The sum over images and windows."""
    x, dy = operands
    found = inside(op, x, by_filter(op, x, dy.shape[1], op.depth) * np.expand_dims(dy, 2))
    found = np.sum(found, axis=(op.rank, *range(op.rank + 3, found.ndim)))
    return np.moveaxis(found, (-2, -1), (0, 1))


def window_max(op: nn.WindowMaxOp, operands: Operands) -> Array:
    """The largest of each window; NumPy's maximum is a NaN where one is."""
    return np.max(taken(op, operands[0], -math.inf), axis=tuple(range(op.rank)))


def window_tap(op: nn.WindowTapOp, operands: Operands) -> Array:
    """Position after position, as torch does: the first that is the largest, and the last NaN."""
    x, largest = operands
    values, inside = taken(op, x, -math.inf), taken(op, np.ones(x.shape), 0) == 1
    none = math.prod(op.windows.kernel)
    tap = np.full(largest.shape, none)
    for number, position in enumerate(np.ndindex(*op.windows.kernel)):
        first = (values[position] == largest) & (tap == none)
        is_nan = np.isnan(values[position]) & np.isnan(largest)
        tap = np.where((first | is_nan) & inside[position], number, tap)
    return tap


def window_index(op: nn.WindowIndexOp, operands: Operands) -> Array:
    """The element of each window at its tap, numbered row-major."""
    rest, windows = operands[0].astype(np.int64), op.windows
    grid = np.indices(rest.shape)
    index, scale = np.zeros_like(rest), 1
    for d in reversed(range(op.rank)):
        position = rest % windows.kernel[d] if d else rest
        rest = rest // windows.kernel[d]
        index += scale * (grid[2 + d] * windows.stride[d] + position * windows.dilation[d] - windows.low[d])
        scale *= op.sizes[d]
    return index


def window_route(op: nn.WindowRouteOp, operands: Operands) -> Array:
    """Each window's dy added to the element at its tap."""
    dy, tap = operands
    result = np.zeros(shape_of(op.result))
    every = slice(None)
    for number, (_, elements, windows) in enumerate(pairs(op.windows, op.sizes, dy.shape[2:])):
        place = (every, every, *windows)
        result[(every, every, *elements)] += np.where(tap[place] == number, dy[place], 0)
    return result


MEANINGS: dict[type[Operation], Meaning] = {
    nn.UnfoldOp: unfold,
    nn.FoldOp: fold,
    nn.WindowSumOp: window_sum,
    nn.WindowProductOp: window_product,
    nn.WindowMaxOp: window_max,
    nn.WindowTapOp: window_tap,
    nn.WindowIndexOp: window_index,
    nn.WindowRouteOp: window_route,
}
"""By the op."""
