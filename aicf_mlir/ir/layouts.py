"""Layouts of the elements of a tensor in a block of memory: `strided<[96, 1], offset: 32>`, as in MLIR.

A tensor without a layout is dense, row-major without gaps, and has its block for itself.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from xdsl.dialects.builtin import IntAttr, MemRefType, NoneAttr, StridedLayoutAttr, TensorType
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.element_types import byte_size

ALIGNMENT = 256
"""Bytes; the address of every block of memory is a multiple."""

LARGEST = (1 << 62) - 1
"""Strides and offsets beyond it are refused: their sums must fit the runtime's 64 bits."""


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class StridedRun(NamedTuple):
    """`size` elements, `dense` apart when the tensor is counted row-major, `stride` apart in the block."""

    size: int
    dense: int
    stride: int


@dataclass(frozen=True)
class Layout:
    """A layout: element (i, j, …) is at offset + i * strides[0] + j * strides[1] + …, counted in elements of the block."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def dense(shape: Sequence[int]) -> Layout:
        """Row-major, without gaps."""
        return Layout(tuple(shape), dense_strides(shape))

    @cached_property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """True if the elements are row-major without gaps from the start of the block."""
        return self.offset == 0 and (
            not self.count or self.significant == Layout.dense(self.shape).significant
        )

    @property
    def significant(self) -> list[tuple[int, int]]:
        """The (size, stride) of the dimensions that matter."""
        return [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]

    @property
    def end(self) -> int:
        """The position in the block after the last element; the offset if there are no elements."""
        if not self.count:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in self.significant)

    @property
    def overlaps_itself(self) -> bool:
        """True if two elements may be one place: nothing can be written to it."""
        reach = 1
        for stride, size in sorted((stride, size) for size, stride in self.significant):
            if stride < reach:
                return self.count > 0
            reach = stride * (size - 1) + reach
        return False

    def spec(self, element: str) -> tuple[str, tuple[int, ...], tuple[int, ...], int]:
        """The spec for queries to the runtime: element type, shape, strides, and the bytes that divide the address."""
        return element, self.shape, self.strides, math.gcd(byte_size(element, (self.offset,)), ALIGNMENT)

    def normal(self) -> Layout:
        """The same places; strides that do not matter, of dimensions of size 1, are those of a tensor without gaps."""
        strides: list[int] = []
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            strides.append(step if size == 1 else stride)
            step = size * strides[-1]
        return Layout(self.shape, tuple(reversed(strides)), self.offset)

    def _runs(self) -> list[StridedRun]:
        """The dimensions from the last to the first; dimensions that follow each other without a gap are one."""
        runs: list[StridedRun] = []
        dense = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size == 1:
                continue
            if runs and stride == runs[-1].stride * runs[-1].size:
                runs[-1] = runs[-1]._replace(size=runs[-1].size * size)
            else:
                runs.append(StridedRun(size, dense, stride))
            dense *= size
        return runs

    @property
    def merged(self) -> Layout:
        """The same places with the fewest dimensions: dimensions that follow each other without a gap are one."""
        runs = self._runs()[::-1]
        return Layout(tuple(run.size for run in runs), tuple(run.stride for run in runs), self.offset)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The positions, `(begin, end)` for each run of consecutive ones."""
        runs = self._runs()
        inner = runs.pop(0).size if runs and runs[0].stride == 1 else 1
        if not self.count:
            return
        for steps in itertools.product(*(range(run.size) for run in reversed(runs))):
            moved = sum(step * run.stride for step, run in zip(steps, reversed(runs), strict=True))
            yield self.offset + moved, self.offset + moved + inner

    def then(self, outer: Layout) -> Layout | None:
        """The places of `outer` in a dense tensor that this layout spreads over its block.

        None if no strides express it, as for the rows of a transposed matrix laid end to end.
        """
        if not self.count or not outer.count:
            return None
        runs = self._runs()[::-1] or [StridedRun(1, 1, 1)]
        reach = [0] * len(runs)  # how far `outer` goes in each run

        def walk(distance: int, times: int) -> int:
            """The distance in the block, counting `times` of it towards the reach."""
            moved = 0
            for i, run in enumerate(runs):
                steps, distance = divmod(distance, run.dense)
                reach[i] += steps * times
                moved += steps * run.stride
            return moved

        offset = walk(outer.offset, 1)
        strides: list[int] = []
        for size, stride in zip(outer.shape, outer.strides, strict=True):
            strides.append(walk(stride, size - 1) if size > 1 else 0)
        if any(far >= run.size for far, run in zip(reach, runs, strict=True)):
            return None
        return Layout(outer.shape, tuple(strides), self.offset + offset).normal()

    def inverse(self, shape: Sequence[int], place: Layout) -> Layout | None:
        """The layout that a dense tensor of `shape` must have for this layout of it to be at `place`.

        None unless this layout has every element of the tensor once, or if no strides express it.
        """
        order = sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], -self.shape[i]))
        order = [i for i in order if self.shape[i] != 1]
        sizes = [self.shape[i] for i in order]
        if self.offset or self.count != math.prod(shape) or not self.count:
            return None
        if tuple(self.strides[i] for i in order) != dense_strides(sizes):
            return None
        inner = Layout(tuple(sizes), tuple(place.strides[i] for i in order), place.offset)
        return inner.then(Layout.dense(shape))

    def to_attribute(self) -> StridedLayoutAttr:
        """The layout of a memref or the encoding of a tensor."""
        return StridedLayoutAttr(self.strides, self.offset)


def layout_of(type_: TensorType[Attribute] | MemRefType[Attribute]) -> Layout:
    """The layout that `type_` has; VerifyException for one that is not strided, or out of range."""
    shape = type_.get_shape()
    written = type_.encoding if isinstance(type_, TensorType) else type_.layout
    if isinstance(written, NoneAttr):
        return Layout.dense(shape)
    if not isinstance(written, StridedLayoutAttr):
        raise VerifyException(f"expected a layout such as strided<[8, 1], offset: 4>, got {type_}")
    strides: list[int] = []
    for stride in written.strides:
        if not isinstance(stride, IntAttr):
            raise VerifyException(f"expected static strides, got {type_}")
        strides.append(stride.data)
    if len(strides) != len(shape):
        raise VerifyException(f"expected a stride for each of {len(shape)} dimensions, got {type_}")
    if not isinstance(written.offset, IntAttr):
        raise VerifyException(f"expected a static offset, got {type_}")
    offset = written.offset.data
    layout = Layout(shape, tuple(strides), offset)
    if min((*strides, offset), default=0) < 0 or max((*strides, offset, layout.end), default=0) > LARGEST:
        raise VerifyException(f"expected strides and an offset from 0 on, and an end below 2^62, got {type_}")
    return layout


def with_layout(type_: TensorType[Attribute], layout: Layout) -> TensorType[Attribute]:
    """A tensor of the same element type, of the shape and at the places of `layout` in a block that it shares."""
    return TensorType(type_.get_element_type(), layout.shape, layout.to_attribute())


def shares_block(type_: Attribute) -> bool:
    """True if `type_` is a tensor with a layout."""
    return isinstance(type_, TensorType) and not isinstance(type_.encoding, NoneAttr)


@dataclass
class Alike:
    """Layouts of one shape, with the same strides."""

    layouts: list[Layout] = field(default_factory=list[Layout])
    runs: dict[tuple[int, ...], list[int]] = field(default_factory=dict[tuple[int, ...], list[int]])
    """By the cell of a grid, where runs of neighbours begin in it, in order."""
    all_in_cells: bool = True


class Places:
    """Places of one block. Slices of one size are found by where they begin: not each is compared with each."""

    def __init__(self) -> None:
        self._alike: dict[tuple[tuple[int, int], ...], Alike] = {}

    def add(self, layout: Layout) -> None:
        """Count these places in."""
        alike = self._alike.setdefault(tuple(layout.significant), Alike())
        alike.layouts.append(layout)
        if (found := cell_of(layout)) is None:
            alike.all_in_cells = False
        else:
            insort(alike.runs.setdefault(found[0], []), found[1].start)

    def meets(self, layout: Layout) -> bool:
        """True if some of these places may be among those; False is certain."""
        own, found = tuple(layout.significant), cell_of(layout)
        for shape, alike in self._alike.items():
            if shape == own and found is not None and alike.all_in_cells:
                begins, run = alike.runs.get(found[0], []), found[1]
                after = bisect_left(begins, run.start)
                if begins[after : after + 1] and begins[after] < run.stop:
                    return True
                if after and begins[after - 1] + len(run) > run.start:
                    return True
            elif not all(disjoint(layout, other) for other in alike.layouts):
                return True
        return False


class WrittenLayouts:
    """Places of one block that have been written; exact if the strides nest, as those of slices do."""

    def __init__(self, written: Sequence[Layout] = ()) -> None:
        self._written: set[Layout] = set()
        self._places, self._apart = Places(), Places()
        self._count = 0
        """The elements of layouts that are apart from each other."""
        for layout in written:
            self.add(layout)

    def add(self, layout: Layout) -> None:
        """Count these places as written."""
        if layout in self._written:
            return
        self._written.add(layout)
        self._places.add(layout)
        if not self._apart.meets(layout):
            self._apart.add(layout)
            self._count += layout.count

    def meets(self, layout: Layout) -> bool:
        """True if some of these places may have been written; False is certain."""
        return self._places.meets(layout)

    def have(self, layout: Layout, size: int) -> bool:
        """True if all of these places of a block of `size` elements have been written; True is certain."""
        return layout.count == 0 or layout in self._written or self._count == size


def cell_of(layout: Layout) -> tuple[tuple[int, ...], range] | None:
    """Where `layout` lies in the grid of layouts of its shape and strides, and the run of neighbours in its cell. Two have
    places in common only in one cell. None if the strides do not nest, or it lies across cells.
    """
    strides = sorted({s for _, s in layout.significant if s} | {1}, reverse=True)
    box = list(_box(layout, strides))
    if not layout.count or len(box) != len(strides) or any(digits.start % len(digits) for digits in box[:-1]):
        return None
    return tuple(digits.start // len(digits) for digits in box[:-1]), box[-1]


def disjoint(left: Layout, right: Layout) -> bool:
    """True if two layouts of one block certainly have no place in common."""
    if not left.count or not right.count or left.end <= right.offset or right.end <= left.offset:
        return True
    return _apart(left, right) or _apart(left.merged, right.merged)


def _apart(left: Layout, right: Layout) -> bool:
    """True if the strides of the two nest, and some digit of their positions is never the same."""
    strides = sorted({s for layout in (left, right) for _, s in layout.significant if s} | {1}, reverse=True)
    boxes = [list(_box(layout, strides)) for layout in (left, right)]
    return any(a.stop <= b.start or b.stop <= a.start for a, b in zip(*boxes, strict=False))


def _box(layout: Layout, strides: Sequence[int]) -> Iterator[range]:
    """The digits that the positions of `layout` have in a system of these strides, as far as they are a box.

    The box says nothing about digits if a stride does not divide the one before, or digits carry.
    """
    rest = layout.offset
    sizes = dict[int, int]()
    for size, stride in layout.significant:
        if stride == 0:
            continue
        sizes[stride] = sizes.get(stride, 1) + size - 1
    digits: list[range] = []
    for i, stride in enumerate(strides):
        if i and strides[i - 1] % stride:
            return
        first, rest = divmod(rest, stride)
        digits.append(range(first, first + sizes.get(stride, 1)))
    for i in range(len(strides) - 1, 0, -1):
        limit = strides[i - 1] // strides[i]
        digit = digits[i]
        if digit.stop <= limit:
            continue
        if digit.start == 0 and len(digit) % limit == 0 and len(digits[i - 1]) == 1:
            over = len(digit) // limit
            digits[i] = range(limit)
            digits[i - 1] = range(digits[i - 1].start, digits[i - 1].start + over)
        else:
            return
    yield from digits
