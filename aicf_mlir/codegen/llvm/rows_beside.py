"""Row kernels whose rows lie side by side in memory: each lane has a row, and walks it alone.

Where the elements of a row are far apart and those of its neighbours next to each other, lanes along the row would gather. Here
no lanes meet. Sums of f32 are added in blocks of 64 terms, and these in f64. Each walk computes again what it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aicf_mlir.codegen.llvm.operations import cast
from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors
from aicf_mlir.codegen.llvm.reductions import Reduction
from aicf_mlir.codegen.llvm.rows import RowPlan, RowWalk, row_plan
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import LANES, Walk, grain_of, lanes_for
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, collapse

BLOCK = 64
"""Terms of f32 that are added before their sum is added in f64."""
MOST_LANES = 32
CACHE = 256 << 10
"""Bytes of the rows of an item, which stay in a cache from one walk to the next."""
FEWEST = 8
"""Neighbouring rows from which on it pays."""


@dataclass(frozen=True)
class RowsBeside:
    """The distribution of rows over lanes and items."""

    plan: RowPlan
    axis: Axis
    """The kept axis that lanes run along."""
    others: tuple[Axis, ...]
    """The other kept axes."""
    strip: int
    """Neighbouring rows of an item, a multiple of the lanes."""
    lanes: int

    @property
    def strips(self) -> int:
        """Items along the axis."""
        return -(-self.axis.size // self.strip)


def beside(kernel: Kernel, strip: int = 0) -> RowsBeside | None:
    """Rows side by side, `strip` to an item or as many as a cache holds; None for a kernel without neighbouring rows."""
    plan = row_plan(kernel)
    axes = collapse(kernel, range(len(kernel.kept)))
    if not axes or not plan.extent:
        return None
    axis = max(axes, key=lambda axis: (axis.strides.count(1), axes.index(axis)))
    lanes = min(lanes_for(kernel, axis.size), MOST_LANES)
    if not strip:
        room = CACHE // (plan.extent * max(sum(byte_size(t.element, ()) for t in tensors(kernel)), 1))
        strip = max(lanes, min(1 << max(room, 1).bit_length() - 1, 16 * LANES))
    if strip % lanes:
        return None
    others = tuple(other for other in axes if other is not axis)
    return RowsBeside(plan, axis, others, strip, lanes)


def pays(kernel: Kernel, found: RowsBeside) -> bool:
    """True if of the bytes that are read in all walks, and written, more are next to each other along the rows' axis than along a
    row.
    """
    along = across = 0
    count = len(kernel.operands)
    for number, tensor in enumerate(tensors(kernel)):
        if number < count:
            times = kernel.wide[number] * sum(number in one.loads for one in found.plan.passes)
        else:
            times = int(kernel.is_whole(number - count))
        moved = times * byte_size(tensor.element, ())
        along += moved * (found.plan.inner.strides[number] == 1)
        across += moved * (found.axis.strides[number] == 1 != found.plan.inner.strides[number])
    return across > along and found.axis.size >= FEWEST


def beside_phases(kernel: Kernel, found: RowsBeside) -> list[tuple[Phase, Function]]:
    """One phase, whose items are some neighbouring rows."""
    function = Function()
    count = prod(axis.size for axis in found.others) * found.strips
    if prod(kernel.kept):
        _write(function, kernel, found)
    grain = grain_of(kernel, found.plan.extent * min(found.strip, found.axis.size))
    return [(Phase(f"{kernel.symbol}_0", count, grain), function)]


def _write(function: Function, kernel: Kernel, found: RowsBeside) -> None:
    axis = found.axis

    def rows(point: Point, carried: list[Value]) -> list[Value]:
        point.evaluate(n for n, t in enumerate(kernel.body.args) if not is_table(t) and not kernel.wide[n])
        for one in found.plan.passes:
            for reduction, total in zip(one.rows, _pass(point, found, one), strict=True):
                point.known[reduction.value] = reduction.finish(function, total)
        for result in range(len(kernel.results)):
            if not kernel.is_whole(result):
                point.store(result)
        return carried

    def item(index: str, carried: list[Value]) -> list[Value]:
        outer, strip = function.unravel(index, (0, found.strips))
        at = function.unravel(outer, [other.size for other in found.others])
        place = LoopPosition.origin(kernel).moved(function, kernel, found.others, at)
        begin = function.multiply(strip, found.strip)
        end = function.smaller(function.add(begin, found.strip), axis.size)
        walk = Walk(Point(function, kernel, place), axis, (), (), found.lanes, found.lanes)
        return walk.run(begin, end, carried, rows)

    function.loop("%begin", "%end", 1, [], item)


def _pass(row: Point, found: RowsBeside, one: RowWalk) -> list[Value]:
    """The totals of a walk over the rows of all lanes; on the way its results are stored."""
    function, kernel, plan = row.function, row.kernel, found.plan
    axes = (*plan.outers, plan.inner)
    sizes = [axis.size for axis in axes]

    def step(index: str, sums: list[Value]) -> list[Value]:
        place = row.place.moved(function, kernel, axes, function.unravel(index, sizes))
        point = Point(function, kernel, place, row.lanes, splats=row.known)
        terms = [point[reduction.term] for reduction in one.rows]
        for result in one.results:
            point.evaluate([kernel.body.results[result]])
        for result in one.results:
            point.store(result)
        return [
            reduction.combine(function, total, term)
            for reduction, total, term in zip(one.rows, sums, terms, strict=True)
        ]

    def block(first: str, totals: list[Value]) -> list[Value]:
        last = function.smaller(function.add(first, BLOCK), plan.extent)
        start = [reduction.start(reduction.type, row.count) for reduction in one.rows]
        sums = function.loop(first, last, 1, start, step)
        return [
            _added(function, reduction, total, part)
            for reduction, total, part in zip(one.rows, totals, sums, strict=True)
        ]

    totals = [reduction.start(reduction.total_type, row.count) for reduction in one.rows]
    return function.loop("0", str(plan.extent), BLOCK, totals, block)


def _added(function: Function, reduction: Reduction, total: Value, part: Value) -> Value:
    wide = part if part.type == reduction.total_type else cast(function, "fpext", part, "f64")
    return reduction.combine(function, total, wide)
