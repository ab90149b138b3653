"""Column kernels: fixed blocks of rows are added to a partial row each, then the partial rows are combined in order.

Partial rows are in the workspace, `[block][reduction][outer kept axes][inner kept axis]`. Within a block the terms of a column
are added in their own type; sums of f32 blocks are combined in f64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.memory import STORED
from aicf_mlir.codegen.llvm.operations import cast
from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors, varying
from aicf_mlir.codegen.llvm.reductions import Reduction, reductions
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import LANES, WIDE_LANES, Walk, grain_of, lanes_for, nanoseconds
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, collapse, elements
from aicf_mlir.kernels.schedule_text import ScheduleText, expect

ROWS, FEW_ROWS = 64, 8
"""The rows of a block. With few columns and little to compute it waits for its partial row, and fewer rows wait less; but partial
rows of f64 are added in no wider type.
"""
NARROW, CHEAP = 32, 0.5
"""Few columns, and few nanoseconds for a point."""
PARTIAL = 32 << 10
"""Bytes of the partial rows of a strip, which stay in the nearest cache."""
NAMES = ("rows", "strip")
HEIGHTS, STRIPS = range(13), range(6, 17)
"""The powers of two that they may be."""
COLUMNS = 512
"""The number of columns that are combined together."""


@dataclass(frozen=True)
class Columns:
    """The axes of a column kernel and its partial rows."""

    kernel: Kernel
    reduced: tuple[Axis, ...]
    outers: tuple[Axis, ...]
    """The kept dimensions' axes, all but the inner one."""
    inner: Axis
    rows: tuple[Reduction, ...]
    height: int
    """The rows of a block."""
    strip: int
    """Columns that one item walks."""

    @staticmethod
    def of(kernel: Kernel) -> Columns:
        """The columns of a kernel, by the schedule that it names or the one that is chosen for it."""
        kept = [dim for dim in range(len(kernel.domain)) if dim not in kernel.reduced_dims]
        axes = collapse(kernel, kept) or [Axis((), 1, (0,) * len(tensors(kernel)))]
        inner = max(axes, key=lambda axis: (axis.strides.count(1), axes.index(axis)))
        outers = tuple(axis for axis in axes if axis is not inner)
        reduced = tuple(collapse(kernel, list(kernel.reduced_dims)))
        rows = tuple(reductions(kernel))
        if not (text := kernel.schedule):
            few = inner.size <= NARROW and nanoseconds(kernel) <= CHEAP
            few = few and all(row.total_type != "f64" or row.type == "f32" for row in rows)
            room = PARTIAL // max(sum(byte_size(row.type, ()) for row in rows), 4)
            strip = 1 << max(room, 1 << STRIPS[0]).bit_length() - 1
            return Columns(kernel, reduced, outers, inner, rows, FEW_ROWS if few else ROWS, strip)
        found = ScheduleText.parse(text, {"columns": NAMES})
        expect(text, "rows", found["rows"], [1 << n for n in HEIGHTS])
        expect(text, "strip", found["strip"], [1 << n for n in STRIPS])
        return Columns(kernel, reduced, outers, inner, rows, found["rows"], found["strip"])

    @property
    def text(self) -> str:
        """What the kernel id says of it."""
        return str(ScheduleText("columns", {"rows": self.height, "strip": self.strip}))

    @property
    def row_count(self) -> int:
        """Points of the reduced dimensions."""
        return prod(self.kernel.reduced_shape)

    @property
    def blocks(self) -> int:
        """The number of blocks of rows."""
        return -(-self.row_count // self.height)

    @property
    def outer_count(self) -> int:
        """Points of the outer kept axes."""
        return prod(axis.size for axis in self.outers)

    @property
    def width(self) -> int:
        """Elements that a partial row has along the inner axis: full vectors."""
        return -(-self.inner.size // LANES) * LANES

    def bytes_of(self, reduction: Reduction) -> int:
        """The bytes of the partial rows of one block."""
        return self.outer_count * self.width * byte_size(reduction.type, ())

    @property
    def block_bytes(self) -> int:
        """The bytes of all partial rows of one block."""
        return sum(self.bytes_of(row) for row in self.rows)

    def partial(self, function: Function, number: int, block: str, outer: str) -> str:
        """The address of the partial row of reduction `number`."""
        offset = function.multiply(block, self.block_bytes)
        offset = function.add(offset, sum(self.bytes_of(row) for row in self.rows[:number]))
        step = self.width * byte_size(self.rows[number].type, ())
        return function.pointer("%workspace", "i8", function.add(offset, function.multiply(outer, step)))


def column_candidates(kernel: Kernel) -> list[str]:
    """The schedule that is chosen, then others."""
    first = Columns.of(replace(kernel, schedule=""))
    others = (
        replace(first, height=height, strip=strip)
        for height, strip in product((4, 8, 16, 64, 256), (2048, 4096, 8192))
    )
    return list(dict.fromkeys([first.text, *(plan.text for plan in others)]))


def column_workspace(kernel: Kernel) -> int:
    """Bytes of the partial rows."""
    return partial_bytes(Columns.of(kernel))


def partial_bytes(columns: Columns) -> int:
    """The bytes of the partial rows of all blocks."""
    return columns.blocks * columns.block_bytes


def column_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    """The phase that walks over rows, and the one that combines them."""
    columns = Columns.of(kernel)
    first = Function()
    strips = -(-columns.inner.size // columns.strip)
    items = columns.blocks * columns.outer_count * strips
    if elements(kernel.domain):
        _write_blocks(first, columns, strips)
    points = min(columns.row_count, columns.height) * min(columns.inner.size, columns.strip)
    return [(Phase(f"{kernel.symbol}_0", items, grain_of(kernel, points)), first), combining_phase(columns)]


def combining_phase(columns: Columns) -> tuple[Phase, Function]:
    """The phase that combines the partial rows, and computes the values that follow from them."""
    function = Function()
    chunks = -(-columns.inner.size // COLUMNS)
    if elements(columns.kernel.kept):
        _write_columns(function, columns, chunks)
    combined = max(1, columns.blocks) * min(columns.inner.size, COLUMNS) * max(1, len(columns.rows))
    grain = max(1, 20_000 // max(combined, 1))
    return Phase(f"{columns.kernel.symbol}_1", columns.outer_count * chunks, grain), function


def _write_blocks(function: Function, columns: Columns, strips: int) -> None:
    kernel, inner, rows = columns.kernel, columns.inner, columns.rows
    whole = [number for number in range(len(kernel.results)) if kernel.is_whole(number)]
    roots = [*(row.term for row in rows), *(kernel.body.results[number] for number in whole)]
    lanes, varies = lanes_for(kernel, inner.size), varying(kernel, inner)
    if not roots:
        return

    def item(index: str, carried: list[Value]) -> list[Value]:
        block, outer, strip = function.unravel(index, (0, columns.outer_count, strips))
        at = function.unravel(outer, [axis.size for axis in columns.outers])
        place = LoopPosition.origin(kernel).moved(function, kernel, columns.outers, at)
        begin = function.multiply(strip, columns.strip) if strips > 1 else "0"
        end = str(inner.size)
        if strips > 1:
            end = function.smaller(function.add(begin, columns.strip), inner.size)
        partial = [columns.partial(function, number, block, outer) for number in range(len(rows))]

        def clear(column: str, carried: list[Value]) -> list[Value]:
            for row, pointer in zip(rows, partial, strict=True):
                start = row.start(row.type, lanes)
                memory.store(
                    function, start, function.pointer(pointer, STORED[row.type], column), row.type, lanes
                )
            return carried

        def act(point: Point, carried: list[Value]) -> list[Value]:
            assert point.lanes is not None
            for row, pointer in zip(rows, partial, strict=True):
                place = function.pointer(pointer, STORED[row.type], point.lanes.index)
                before = memory.load(function, place, row.type, point.count)
                after = row.combine(function, before, point[row.term])
                memory.store(function, after, place, row.type, point.count)
            for number in whole:
                point.store(number)
            return carried

        def row(number: str, carried: list[Value]) -> list[Value]:
            position = function.unravel(number, [axis.size for axis in columns.reduced])
            here = Point(function, kernel, place.moved(function, kernel, columns.reduced, position))
            return Walk(here, inner, varies, roots, lanes).run(begin, end, carried, act)

        if rows:
            function.loop(begin, end, lanes, [], clear)
        first = function.multiply(block, columns.height)
        last = function.smaller(function.add(first, columns.height), columns.row_count)
        return function.loop(first, last, 1, carried, row)

    function.loop("%begin", "%end", 1, [], item)


def _write_columns(function: Function, columns: Columns, chunks: int) -> None:
    kernel, inner, rows = columns.kernel, columns.inner, columns.rows
    results = [number for number in range(len(kernel.results)) if not kernel.is_whole(number)]
    roots = [kernel.body.results[number] for number in results]
    lanes = min(lanes_for(kernel, inner.size), WIDE_LANES)
    if not results:
        return

    def item(index: str, carried: list[Value]) -> list[Value]:
        outer, chunk = function.unravel(index, (0, chunks))
        at = function.unravel(outer, [axis.size for axis in columns.outers])
        place = LoopPosition.origin(kernel).moved(function, kernel, columns.outers, at)
        begin = function.multiply(chunk, COLUMNS) if chunks > 1 else "0"
        end = str(inner.size)
        if chunks > 1:
            end = function.smaller(function.add(begin, COLUMNS), inner.size)

        def given(point: Point) -> None:
            for row, total in zip(rows, _combined(function, columns, outer, point), strict=True):
                point.known[row.value] = row.finish(function, total)

        def act(point: Point, carried: list[Value]) -> list[Value]:
            for number in results:
                point.store(number)
            return carried

        here = Point(function, kernel, place)
        values = [row.value for row in rows]
        walk = Walk(here, inner, varying(kernel, inner), roots, lanes, given=(values, given))
        return walk.run(begin, end, carried, act)

    function.loop("%begin", "%end", 1, [], item)


def _combined(function: Function, columns: Columns, outer: str, point: Point) -> list[Value]:
    """The totals of the columns at a point: the partial rows in order."""
    lanes = point.lanes
    assert lanes is not None

    def block(number: str, before: list[Value]) -> list[Value]:
        totals: list[Value] = []
        for place, (row, total) in enumerate(zip(columns.rows, before, strict=True)):
            start = columns.partial(function, place, number, outer)
            pointer = function.pointer(start, STORED[row.type], lanes.index)
            one = memory.load(function, pointer, row.type, lanes.count)
            one = one if one.type == row.total_type else cast(function, "fpext", one, "f64")
            totals.append(row.combine(function, total, one))
        return totals

    start = [row.start(row.total_type, lanes.count) for row in columns.rows]
    return function.loop("0", str(columns.blocks), 1, start, block)
