"""Samples of pads, flips, rolls and bands; of what an index reads and writes; of running sums and ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from samples.checks import numbers
from samples.sample import Fill, Sample, classes, normal, special, special_slowly, tensors, unit

Build = Callable[..., Operation]


def padded(x: Any, low: tuple[int, ...], high: tuple[int, ...], value: float = 0.0) -> Any:
    """torch.nn.functional.pad, whose widths begin with the last dimension."""
    widths = [width for pair in zip(reversed(low), reversed(high), strict=True) for width in pair]
    return F.pad(x, widths, value=value)


PADS: tuple[tuple[str, tuple[int, ...], tuple[int, ...], float], ...] = (
    ("7", (2,), (3,), 0.0),
    ("3x5", (0, 1), (2, 0), 1.5),
    ("3x5", (-1, 2), (1, -3), -0.25),
    ("2x3x4", (0, -1, 0), (0, -1, 0), 0.0),
    ("1x2x1x9", (1, 0, 2, -4), (0, 0, 1, 0), 0.0),
    ("2x3", (0, -3), (0, 0), 0.0),
)


def pads() -> Iterator[Sample]:
    """More, less and nothing of each dimension."""
    for number, (shape, low, high, value) in enumerate(PADS):

        def build(x: Any, low: Any = low, high: Any = high, value: float = value) -> Operation:
            return nn.PadOp(x, low, high, value)

        def reference(x: Any, low: Any = low, high: Any = high, value: float = value) -> Any:
            return padded(x, low, high, value)

        yield Sample(f"pad {number}", tensors(shape), build, reference)
    yield Sample(
        "integers", ("3xi64",), lambda x: nn.PadOp(x, [1], [1], -7.0), lambda x: padded(x, (1,), (1,), -7)
    )


def moves() -> Iterator[Sample]:
    """Flips and rolls."""
    for shape, dims in (("7", (0,)), ("3x5", (0, 1)), ("2x3x4", (1,)), ("2x3", ()), ("0x3", (0,))):

        def flip(x: Any, dims: Any = dims) -> Operation:
            return nn.FlipOp(x, dims)

        def flipped(x: Any, dims: Any = dims) -> Any:
            return torch.flip(x, dims)

        yield Sample(f"{shape} {dims}", tensors(shape), flip, flipped)
    for shape, shifts in (("7", (2,)), ("3x5", (-1, 7)), ("2x3x4", (0, 1, 0)), ("1x1", (0, 3))):

        def roll(x: Any, shifts: Any = shifts) -> Operation:
            return nn.RollOp(x, shifts)

        def rolled(x: Any, shifts: Any = shifts) -> Any:
            return torch.roll(x, shifts, tuple(range(len(shifts))))

        yield Sample(f"{shape} {shifts}", tensors(shape), roll, rolled)


def bands() -> Iterator[Sample]:
    """Triangles, bands, and what stands outside of them."""
    for shape, lower, upper in (("3x5", None, 0), ("2x4x3", 1, None), ("5x5", -1, 1), ("1x7", 0, 2)):

        def build(x: Any, lower: Any = lower, upper: Any = upper) -> Operation:
            return nn.BandOp(x, lower, upper)

        def reference(x: Any, lower: Any = lower, upper: Any = upper) -> Any:
            x = x if lower is None else torch.triu(x, lower)
            return x if upper is None else torch.tril(x, upper)

        yield Sample(f"{shape} {lower} {upper}", tensors(shape), build, reference)

    def masked(x: Any) -> Any:
        return x.masked_fill(torch.ones(x.shape, dtype=torch.bool).triu(1), -float("inf"))

    yield Sample(
        "causal", tensors("4x4"), lambda x: nn.BandOp(x, None, 0, -float("inf")), masked, smooth=False
    )
    yield Sample(
        "special", tensors("13x13"), lambda x: nn.BandOp(x, -3, 5), banded, {0: special}, smooth=False
    )


def banded(x: Any) -> Any:
    """Between two diagonals; what is outside is 0 whatever stood there."""
    return torch.tril(torch.triu(x, -3), 5)


def reads() -> Iterator[Sample]:
    """Elements and slices by index."""
    for x, index, dim in (
        ("3x5", "3x2", 1),
        ("3x5", "7x4", 0),
        ("3x5", "3x1", 1),
        ("4", "9", 0),
        ("2x3x4", "1x3x2", 2),
        ("2x6x3", "2x1x3", 1),
    ):
        size = int(x.split("x")[dim])

        def gather(x: Any, index: Any, dim: int = dim) -> Operation:
            return nn.GatherOp(x, index, dim)

        def gathered(x: Any, index: Any, dim: int = dim) -> Any:
            return torch.gather(x, dim, index)

        yield Sample(f"{x} {index}", (f"{x}xf32", f"{index}xi64"), gather, gathered, {1: classes(size)})
        yield Sample(
            f"{x} {index}",
            (f"{index}xi64",),
            lambda index, x=x, dim=dim: nn.ElementNumberOp(index, [int(n) for n in x.split("x")], dim),
            lambda index, x=x, dim=dim: numbered(index, [int(n) for n in x.split("x")], dim),
            {0: classes(size, -1, size)},
            smooth=False,
        )
    for x, index, dim in (
        ("7x5", "2x3", 0),
        ("7x5", "4", 1),
        ("2x6x3", "4", 1),
        ("5", "3x2", 0),
        ("2x3x4x2", "2x2", 2),
        ("4x2", "", 0),
    ):
        size = int(x.split("x")[dim])
        written = f"{index}xi64" if index else "i64"

        def take(x: Any, index: Any, dim: int = dim) -> Operation:
            return nn.TakeOp(x, index, dim)

        def taken(x: Any, index: Any, dim: int = dim) -> Any:
            shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
            return torch.index_select(x, dim, index.reshape(-1)).reshape(shape)

        yield Sample(f"{x} {index}", (f"{x}xf32", written), take, taken, {1: classes(size)})
    for x, dim, index in (("6x3", 0, (4, 1, 5)), ("2x5x3", 1, (3, 0, 4, 2, 1))):
        size = int(x.split("x")[dim])
        inverse = np.array([index.index(i) if i in index else -1 for i in range(size)])
        yield Sample(
            f"{x} {index} with an inverse",
            (f"{x}xf32", f"{len(index)}xi64", f"{size}xi64"),
            lambda x, index, inverse, dim=dim: nn.TakeOp(x, index, dim, inverse),
            lambda x, index, inverse, dim=dim: torch.index_select(x, dim, index),
            {1: numbers(*index)},
            follow=lambda operands, inverse=inverse: {2: inverse},
        )


def numbered(index: Any, shape: list[int], dim: int) -> Any:
    """The numbers of elements in row-major order; -1 outside."""
    grid = list(torch.meshgrid(*(torch.arange(n) for n in index.shape), indexing="ij"))
    grid[dim] = index
    total = torch.zeros_like(index)
    for size, place in zip(shape, grid, strict=True):
        total = total * size + place
    return torch.where((index >= 0) & (index < shape[dim]), total, -1)


def several(count: int) -> Fill:
    """Places of which none is named twice along any dimension."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.permutation(count)[: shape[0]] if len(shape) == 1 else np.indices(shape).sum(0) % count

    return fill


def writes() -> Iterator[Sample]:
    """Rows that are added, elements that are replaced."""
    for rows, columns, sources in ((4, 3, 7), (5, 1, 9), (3, 2, 0), (1, 6, 4)):
        types = (f"{rows}x{columns}xf32", f"{sources}xi64", f"{sources}x{columns}xf32")
        yield Sample(
            f"{rows}x{columns} {sources}",
            types,
            lambda x, index, src: nn.ScatterAddOp(x, index, src),
            lambda x, index, src: torch.index_add(x, 0, index, src),
            {1: classes(rows)},
        )
    for x, index, dim in (("3x5", "3x2", 1), ("6x2", "4x2", 0), ("7", "3", 0), ("2x4x3", "2x4x3", 1)):
        size = int(x.split("x")[dim])

        def scatter(x: Any, index: Any, src: Any, dim: int = dim) -> Operation:
            return nn.ScatterOp(x, index, src, dim)

        def scattered(x: Any, index: Any, src: Any, dim: int = dim) -> Any:
            return torch.scatter(x, dim, index, src)

        types = (f"{x}xf32", f"{index}xi64", f"{index}xf32")
        yield Sample(f"{x} {index}", types, scatter, scattered, {1: several(size)})


def reduced() -> Iterator[Sample]:
    """Rows in the place of rows, or reduced with them: with those that are there and without."""
    kinds = {"max": "amax", "min": "amin", "prod": "prod"}
    for rows, columns, sources in ((4, 3, 7), (5, 1, 9), (9, 2, 4)):
        types = (f"{rows}x{columns}xf32", f"{sources}xi64", f"{sources}x{columns}xf32")
        name = f"{rows}x{columns} {sources}"
        if sources < rows:
            yield Sample(
                name,
                types,
                lambda x, index, src: nn.ScatterRowsOp(x, index, src),
                lambda x, index, src: torch.index_copy(x, 0, index, src),
                {1: several(rows)},
            )
        for kind, include in product(kinds, (True, False)):

            def reduce(x: Any, index: Any, src: Any, kind: str = kind, own: bool = include) -> Operation:
                return nn.ScatterReduceOp(x, index, src, kind, own)

            def of_torch(x: Any, index: Any, src: Any, kind: str = kind, own: bool = include) -> Any:
                wide = index[:, None].expand(src.shape)
                return torch.scatter_reduce(x, 0, wide, src, kinds[kind], include_self=own)

            yield Sample(f"{kind} {name} {include}", types, reduce, of_torch, {1: classes(rows)})


ROWS = (("7", 0), ("3x5", 1), ("5x3", 0), ("2x15x4", 1), ("1x1", 1), ("2x3x16", 2))
"""Shapes and the dimension that is walked."""


def walks() -> Iterator[Sample]:
    """Running sums in both directions, ranks in both orders, and the permutations that undo them."""
    for shape, dim in ROWS:
        for turned in (False, True):

            def cumsum(x: Any, dim: int = dim, turned: bool = turned) -> Operation:
                return nn.CumsumOp(x, dim, turned)

            def summed(x: Any, dim: int = dim, turned: bool = turned) -> Any:
                return x.flip(dim).cumsum(dim).flip(dim) if turned else x.cumsum(dim)

            def rank(x: Any, dim: int = dim, turned: bool = turned) -> Operation:
                return nn.RankOp(x, dim, turned)

            def ranked(x: Any, dim: int = dim, turned: bool = turned) -> Any:
                return x.argsort(dim=dim, descending=turned, stable=True).argsort(dim)

            yield Sample(f"{shape} {turned}", tensors(shape), cumsum, summed)
            yield Sample(f"{shape} {turned}", tensors(shape), rank, ranked, smooth=False)
        size = int(shape.split("x")[dim])
        for kept in {size, (size + 1) // 2}:
            yield Sample(
                f"{shape} {kept}",
                (f"{shape}xi64",),
                lambda ranks, dim=dim, kept=kept: nn.InversePermutationOp(ranks, dim, kept),
                lambda ranks, dim=dim, kept=kept: ranks.argsort(dim).narrow(dim, 0, kept),
                {0: permutations(dim)},
                smooth=False,
            )
    yield Sample("integers", ("3x4xi64",), lambda x: nn.CumsumOp(x, 1), lambda x: x.cumsum(1), smooth=False)
    for turned in (False, True):

        def by_order(x: Any, turned: bool = turned) -> Operation:
            return nn.RankOp(x, 1, turned)

        def of_torch(x: Any, turned: bool = turned) -> Any:
            return x.argsort(dim=1, descending=turned, stable=True).argsort(1)

        for fill in (special, special_slowly):
            name = f"{fill.__name__} {turned}"
            yield Sample(name, tensors("13x13"), by_order, of_torch, {0: fill}, smooth=False)
        yield Sample(f"integers {turned}", ("3x9xi64",), by_order, of_torch, {0: classes(4)}, smooth=False)


def small_whole(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(-1, 3, shape).astype(np.float64)


def decay(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return -np.abs(unit(rng, shape))


def scans() -> Iterator[Sample]:
    """Long rows: what is joined with what is in front of it, and orders."""
    for (shape, dim), turned in product((("40", 0), ("3x50", 1), ("50x3", 0), ("2x4x3", 1)), (False, True)):

        def reversed_(of: Callable[[Any], Any], x: Any, dim: int = dim, turned: bool = turned) -> Any:
            return of(x.flip(dim)).flip(dim) if turned else of(x)

        for kind, of in (("sum", torch.cumsum), ("prod", torch.cumprod), ("logaddexp", torch.logcumsumexp)):

            def scan(x: Any, kind: str = kind, dim: int = dim, turned: bool = turned) -> Operation:
                return nn.ScanOp(x, dim, kind, reverse=turned)

            def scanned(x: Any, of: Any = of, dim: int = dim, reversed_: Any = reversed_) -> Any:
                return reversed_(lambda x: of(x, dim), x)

            yield Sample(f"{kind} {shape} {turned}", tensors(shape), scan, scanned)

        def recurrence(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Operation:
            return nn.ScanOp(x, dim, "linear", factor=factor, reverse=turned)

        def recurred(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Any:
            found = [torch.zeros_like(x.select(dim, 0))]
            for i in sorted(range(x.shape[dim]), reverse=turned):
                found.append(factor.select(dim, i) * found[-1] + x.select(dim, i))
            return torch.stack(found[:0:-1] if turned else found[1:], dim)

        yield Sample(f"linear {shape} {turned}", tensors(shape, shape), recurrence, recurred, {1: unit})

        def segments(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Operation:
            return nn.ScanOp(x, dim, "segment_sum", factor=factor, reverse=turned)

        def segment_sums(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Any:
            found = [torch.zeros_like(x.select(dim, 0))]
            for i in sorted(range(x.shape[dim]), reverse=turned):
                goes_on = factor.select(dim, i) != 0
                found.append(torch.where(goes_on, found[-1], 0) + x.select(dim, i))
            return torch.stack(found[:0:-1] if turned else found[1:], dim)

        def grown(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Operation:
            return nn.ScanOp(x, dim, "exp_linear", factor=factor, reverse=turned)

        def growth(x: Any, factor: Any, dim: int = dim, turned: bool = turned) -> Any:
            first, *others = sorted(range(x.shape[dim]), reverse=turned)
            found = [x.select(dim, first)]  # nothing is in front of it, whatever its factor is
            for i in others:
                found.append(factor.select(dim, i).exp() * found[-1] + x.select(dim, i))
            return torch.stack(found[::-1] if turned else found, dim)

        yield Sample(f"exp_linear {shape} {turned}", tensors(shape, shape), grown, growth, {1: decay})
        name = f"segments {shape} {turned}"
        yield Sample(name, tensors(shape, shape), segments, segment_sums, {1: small_whole})
    for kind, of, fill in product(("argmax", "argmin"), (torch.cummax,), (special, special_slowly)):
        of = torch.cummin if kind == "argmin" else of

        def place(x: Any, kind: str = kind) -> Operation:
            return nn.ScanOp(x, 1, kind)

        def placed(x: Any, of: Any = of) -> Any:
            return of(x, 1)[1]

        yield Sample(f"{kind} {fill.__name__}", tensors("2x40"), place, placed, {0: fill}, smooth=False)
    yield Sample(
        "whole", ("3x40xi64",), lambda x: nn.ScanOp(x, 1, "sum"), lambda x: x.cumsum(1), smooth=False
    )
    for (shape, count), turned in product((("40", 40), ("3x70", 5), ("2x3x50", 50)), (False, True)):

        def argsort(x: Any, count: int = count, turned: bool = turned) -> Operation:
            return nn.ArgsortOp(x, count, turned)

        def sorted_(x: Any, count: int = count, turned: bool = turned) -> Any:
            return x.argsort(dim=-1, descending=turned, stable=True)[..., :count]

        for fill in (normal, special, special_slowly):
            name = f"{fill.__name__} {shape} {turned}"
            yield Sample(name, tensors(shape), argsort, sorted_, {0: fill}, smooth=False)
        yield Sample(
            f"ties {shape} {turned}", (f"{shape}xi64",), argsort, sorted_, {0: classes(4)}, smooth=False
        )

        def middle(x: Any, turned: bool = turned) -> Operation:
            return nn.ArgsortOp(x, 1, turned, first=20)

        def of_middle(x: Any, turned: bool = turned) -> Any:
            return x.argsort(dim=-1, descending=turned, stable=True)[..., 20:21]

        yield Sample(
            f"middle {shape} {turned}", tensors(shape), middle, of_middle, {0: special}, smooth=False
        )


def permutations(dim: int) -> Fill:
    """Each row along `dim` a permutation."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.argsort(rng.standard_normal(shape), axis=dim)

    return fill


def indexing() -> list[Sample]:
    """All of them."""
    return [*pads(), *moves(), *bands(), *reads(), *writes(), *reduced(), *walks(), *scans()]
