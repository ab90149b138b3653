"""Samples of windows: strides, dilations, padding on one side or both, more elements than windows reach, one to three dims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn import Windows
from aicf_mlir.interpreters.numerics import Array
from samples.sample import Fill, Sample, classes, special, tensors

Ints = tuple[int, ...]
TAP = "i32"

CASES: tuple[tuple[Ints, Windows, Ints], ...] = (
    ((2, 3, 7), Windows.of((3,)), (5,)),
    ((1, 2, 9), Windows.of((4,), (3,), (2,), (2,)), (3,)),
    ((2, 2, 5, 6), Windows.of((3, 3), None, None, (1, 1)), (5, 6)),
    ((2, 2, 8, 7), Windows.of((3, 2), (2, 3), None, (1, 0)), (4, 3)),
    ((1, 3, 6, 5), Windows.of((2, 3), (2, 2), (1, 2), (1, 2)), (4, 3)),
    ((3, 1, 4, 18), Windows.of((1, 5), (1, 4), None, (0, 2)), (4, 5)),
    ((1, 2, 4, 5, 4), Windows.of((2, 3, 2), (1, 2, 2), None, (1, 1, 0)), (5, 3, 2)),
    ((2, 1, 5, 6, 16), Windows.of((3, 3, 1), (2, 2, 1), None, (1, 1, 0)), (3, 3, 16)),
    ((1, 1, 12, 12), Windows.of((9, 9), (2, 2), None, (4, 4)), (6, 6)),
)
"""The shape of x, the relation, and how many windows there are. The one before the last has channels as a direction; the last has
more positions than a body unrolls.
"""

DEEP: tuple[tuple[Ints, Windows, Ints, int, int], ...] = (
    ((2, 3, 5, 6), Windows.of((3, 3), None, None, (1, 1)), (5, 6), 3, 2),
    ((1, 3, 9), Windows.of((4,), (3,), (2,), (2,)), (3,), 1, 6),
    ((2, 4, 5, 4), Windows.of((2, 3), (2, 1), None, (1, 1)), (3, 4), 2, 6),
    ((1, 8, 5, 5), Windows.of((3, 3), (2, 2), None, (1, 1)), (3, 3), 8, 3),
    ((1, 4, 12, 12), Windows.of((9, 9), (2, 2), None, (4, 4)), (6, 6), 2, 2),
    ((1, 2, 3, 4, 3), Windows.of((2, 2, 2)), (2, 3, 2), 2, 1),
)
"""With the channels of a group and the filters; two of them reduce the channels, and one of these the positions too."""


def places(windows: Windows, sizes: Sequence[int], counts: Sequence[int]) -> Any:
    """The number of each element among `sizes`, as [*kernel, *counts]; -1 outside."""
    found = torch.full((*windows.kernel, *counts), -1)
    for position in np.ndindex(*windows.kernel):
        for window in np.ndindex(*counts):
            at = [
                o * s + k * d - low
                for o, s, k, d, low in zip(
                    window, windows.stride, position, windows.dilation, windows.low, strict=True
                )
            ]
            spread = zip(at, windows.spread, sizes, strict=True)
            if all(n % b == 0 and 0 <= n // b < size for n, b, size in spread):
                inside = [n // b for n, b in zip(at, windows.spread, strict=True)]
                found[(*position, *window)] = int(np.ravel_multi_index(inside, sizes))
    return found


def taken(x: Any, windows: Windows, counts: Sequence[int], outside: float = 0.0) -> Any:
    """[N, C, *kernel, *counts]: by the number of each element."""
    where = places(windows, x.shape[2:], counts)
    found = x.flatten(2)[:, :, where.clamp(min=0)]
    return torch.where(where >= 0, found, torch.tensor(outside, dtype=x.dtype))


def text(shape: Sequence[int]) -> str:
    """As the types are written."""
    return "x".join(map(str, shape))


def taps(windows: Windows, sizes: Sequence[int]) -> Fill:
    """For each window one of its positions that has an element."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        every = places(windows, sizes, shape[2:]).flatten(0, windows.rank - 1).numpy()
        rows = every.reshape(every.shape[0], -1)
        chosen = [rng.choice(np.flatnonzero(column >= 0), shape[:2]) for column in rows.T]
        return np.stack(chosen, -1).reshape(shape)

    return fill


def windows() -> Iterator[Sample]:
    """All of them."""
    for (shape, relation, counts), turned in product(CASES, (False, True)):
        yield from sums(shape, relation, counts, turned)
    for (shape, relation, counts, own, filters), turned in product(DEEP, (False, True)):
        yield from weighed(shape, relation, counts, turned, own, filters)
    for shape, relation, counts in CASES:
        yield from matrices(shape, relation, counts)
        yield from extremes(shape, relation, counts)
    x, relation, counts = (1, 1, 13, 13), Windows.of((3, 3), (2, 2), None, (1, 1)), (7, 7)
    largest, _ = of_largest(relation, counts)
    yield Sample(
        "special",
        tensors(text(x)),
        lambda x: nn.WindowMaxOp(x, relation, counts),
        largest,
        {0: special},
        smooth=False,
    )
    yield Sample(
        "integers",
        ("1x2x5xi64",),
        lambda x: nn.UnfoldOp(x, Windows.of((2,), None, None, (1,)), (6,)),
        lambda x: taken(x, Windows.of((2,), None, None, (1,)), (6,)).permute(1, 2, 0, 3),
    )


def matrices(shape: Ints, relation: Windows, counts: Ints) -> Iterator[Sample]:
    """Unfold and fold."""
    n, c, *sizes = shape
    rank = relation.rank
    order = (1, *range(2, rank + 2), 0, *range(rank + 2, 2 * rank + 2))

    def unfolded(x: Any) -> Any:
        return taken(x, relation, counts).permute(order)

    def folded(x: Any) -> Any:
        where = places(relation, sizes, x.shape[rank + 2 :]).flatten()
        leading = (x.shape[rank + 1], x.shape[0])
        rows = x.movedim(rank + 1, 0).reshape(*leading, -1)[..., where >= 0]
        zeros = torch.zeros(*leading, math.prod(sizes), dtype=x.dtype)
        return zeros.index_add(2, where[where >= 0], rows).reshape(*leading, *sizes)

    name = f"{text(shape)} {relation}"
    yield Sample(name, tensors(text(shape)), lambda x: nn.UnfoldOp(x, relation, counts), unfolded)
    wide = text((c, *relation.kernel, n, *counts))
    yield Sample(name, tensors(wide), lambda x: nn.FoldOp(x, relation, sizes), folded)


def sums(shape: Ints, relation: Windows, counts: Ints, turned: bool) -> Iterator[Sample]:
    """Sums of windows, weighed or not, and the gradient of the weights; with windows and elements exchanged."""
    n, c, *sizes = shape
    given = relation.transposed if turned else relation
    source, size = (counts, tuple(sizes)) if turned else (tuple(sizes), counts)

    def reference(x: Any) -> Any:
        element, _, window = inside(given, x.shape[2:], size)
        zeros = torch.zeros(*x.shape[:2], math.prod(size), dtype=x.dtype)
        return zeros.index_add(2, window, x.flatten(2)[:, :, element]).reshape(*x.shape[:2], *size)

    x = text((n, c, *source))
    yield Sample(f"{x} {given}", tensors(x), lambda x: nn.WindowSumOp(x, None, given, size), reference)
    yield from weighed(shape, relation, counts, turned, 1, c)


def inside(windows: Windows, sizes: Sequence[int], counts: Sequence[int]) -> tuple[Any, Any, Any]:
    """Every element in a window: its number, its position and its window. Nothing outside is multiplied."""
    numbers = places(windows, sizes, counts).reshape(math.prod(windows.kernel), -1)
    position, window = (numbers >= 0).nonzero(as_tuple=True)
    return numbers[position, window], position, window


def weighed(
    shape: Ints, relation: Windows, counts: Ints, turned: bool, own: int, filters: int
) -> Iterator[Sample]:
    """Filters over the channels of groups, and their gradient."""
    n, c, *sizes = shape
    groups = c // own
    given = relation.transposed if turned else relation
    source, size = (counts, tuple(sizes)) if turned else (tuple(sizes), counts)

    def by_group(x: Any, each: Any) -> Any:
        """[N, groups, 1, own, elements in windows]."""
        return x.flatten(2)[:, :, each].reshape(len(x), groups, 1, own, -1)

    def reference(x: Any, w: Any) -> Any:
        element, position, window = inside(given, x.shape[2:], size)
        weights = w.flatten(2)[:, :, position].reshape(1, groups, filters // groups, own, -1)
        terms = (by_group(x, element) * weights).sum(3).reshape(len(x), filters, -1)
        zeros = torch.zeros(len(x), filters, math.prod(size), dtype=x.dtype)
        return zeros.index_add(2, window, terms).reshape(len(x), filters, *size)

    def weights(x: Any, dy: Any) -> Any:
        element, position, window = inside(given, x.shape[2:], dy.shape[2:])
        seen = dy.flatten(2)[:, :, window].reshape(len(x), groups, filters // groups, 1, -1)
        terms = (by_group(x, element) * seen).sum(0).reshape(filters, own, -1)
        zeros = torch.zeros(filters, own, math.prod(given.kernel), dtype=x.dtype)
        return zeros.index_add(2, position, terms).reshape(filters, own, *given.kernel)

    x, w, y = text((n, c, *source)), text((filters, own, *given.kernel)), text((n, filters, *size))
    name = f"{x} {given} weighed by {w}"
    yield Sample(name, tensors(x, w), lambda x, w: nn.WindowSumOp(x, w, given, size), reference)
    yield Sample(name, tensors(x, y), lambda x, dy: nn.WindowProductOp(x, dy, given, own), weights)


def of_largest(relation: Windows, counts: Ints) -> tuple[Callable[[Any], Any], Callable[..., Any]]:
    """The largest of each window, and the tap of the first that is some number."""
    rank = relation.rank

    def by_tap(x: Any) -> tuple[Any, Any]:
        found = taken(x, relation, counts, -math.inf).flatten(2, rank + 1)
        return found, places(relation, x.shape[2:], counts).flatten(0, rank - 1) >= 0

    def values(x: Any) -> Any:
        """As torch's pools: one element of a window has its gradient, the last NaN or else the first of the largest."""
        with torch.no_grad():
            found, there = by_tap(x)
            order = torch.arange(len(there)).reshape(-1, *[1] * rank)
            first = (found == found.nan_to_num(-math.inf, math.inf, -math.inf).amax(2, keepdim=True)) & there
            rank_of = torch.where(
                found.isnan(), len(there) + order, torch.where(first, -order - 1, -math.inf)
            )
            element = numbers(rank_of.argmax(2), relation, x.shape[2:])
        return x.flatten(2).gather(2, element.flatten(2)).reshape(element.shape)

    def taps_of(x: Any, largest: Any) -> Any:
        found, there = by_tap(x)
        order = torch.arange(len(there), dtype=torch.int32).reshape(-1, *[1] * rank)
        return order.where((found == largest[:, :, None]) & there, len(there)).amin(2)

    return values, taps_of


def numbers(tap: Any, relation: Windows, sizes: Sequence[int]) -> Any:
    """The number of the element at each tap."""
    where = places(relation, sizes, tap.shape[2:]).flatten(0, relation.rank - 1)
    return where.expand(*tap.shape[:2], *where.shape).gather(2, tap.long()[:, :, None])[:, :, 0]


def extremes(shape: Ints, relation: Windows, counts: Ints) -> Iterator[Sample]:
    """Maximum pools and the way back."""
    n, c, *sizes = shape
    values, taps_of = of_largest(relation, counts)

    def routed(dy: Any, tap: Any) -> Any:
        zeros = torch.zeros(*dy.shape[:2], math.prod(sizes), dtype=dy.dtype)
        summed = zeros.scatter_add(2, numbers(tap, relation, sizes).flatten(2), dy.flatten(2))
        return summed.reshape(*dy.shape[:2], *sizes)

    name, small = f"{text(shape)} {relation}", text((n, c, *counts))
    yield Sample(name, tensors(text(shape)), lambda x: nn.WindowMaxOp(x, relation, counts), values)
    yield Sample(
        name,
        tensors(text(shape), small),
        lambda x, y: nn.WindowTapOp(x, y, relation),
        taps_of,
        {0: classes(3), 1: classes(3)},
        smooth=False,
    )
    yield Sample(
        name,
        (f"{small}x{TAP}",),
        lambda tap: nn.WindowIndexOp(tap, relation, sizes),
        lambda tap: numbers(tap, relation, sizes),
        {0: taps(relation, sizes)},
        smooth=False,
    )
    yield Sample(
        name,
        (*tensors(small), f"{small}x{TAP}"),
        lambda dy, tap: nn.WindowRouteOp(dy, tap, relation, sizes),
        routed,
        {1: taps(relation, sizes)},
    )
