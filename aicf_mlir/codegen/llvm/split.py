"""Row kernels with few long rows: blocks of a row are reduced in parallel, then combined in order.

Results of the domain's shape, which follow no reduction, are written by the first phase. Only the shape decides if and where a
row is split, never the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.point import LoopPosition, Point
from aicf_mlir.codegen.llvm.reductions import LANES, Reduction, reduce_along
from aicf_mlir.codegen.llvm.rows import RowPlan
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Walk, grain_of, lanes_for
from aicf_mlir.kernels.kernel import Kernel, Phase, collapse

FEW = 64
"""Rows; as many or more are shared out whole."""
BLOCK = 8192
"""Points of a row that are reduced together, a multiple of 512."""
SLOT = 8
"""Bytes of one partial result."""


@dataclass(frozen=True)
class RowSplit:
    """A row in parts: of the inner axis if that is long, else of whole stretches of it."""

    plan: RowPlan
    outers: int
    """Points of the outer reduced axes."""
    chunks: int
    """Parts of the inner axis."""
    group: int
    """Points of the outer axes in a part, where the inner axis is one."""
    block: int
    """Points of a row that are reduced together, about."""

    @property
    def parts(self) -> int:
        """The parts of a row."""
        return self.outers * self.chunks if self.chunks > 1 else -(-self.outers // self.group)

    @property
    def rows(self) -> list[Reduction]:
        """The reductions of the rows."""
        return self.plan.passes[0].rows


def can_split(plan: RowPlan) -> bool:
    """True if a row has one level of reductions, and elements."""
    return len(plan.passes) == 1 and plan.extent > 0 and plan.inner.size > 0


def divided(plan: RowPlan, block: int) -> RowSplit:
    """Rows in parts of about `block` points."""
    outers = prod(axis.size for axis in plan.outers)
    return RowSplit(plan, outers, -(-plan.inner.size // block), -(-block // plan.inner.size), block)


def split_workspace(kernel: Kernel, split: RowSplit) -> int:
    """Bytes of the partial results."""
    return prod(kernel.kept) * split.parts * len(split.rows) * SLOT


def split_phases(kernel: Kernel, split: RowSplit) -> list[tuple[Phase, Function]]:
    """The phase that reduces parts, and the one that combines them."""
    rows = prod(kernel.kept)
    first, second = Function(), Function()
    if rows:
        _write_parts(first, kernel, split)
        _write_rows(second, kernel, split)
    name = kernel.symbol
    return [
        (Phase(f"{name}_0", rows * split.parts, grain_of(kernel, split.block)), first),
        (Phase(f"{name}_1", rows, max(1, 4000 // split.parts)), second),
    ]


def _slot(function: Function, split: RowSplit, part: str, number: int) -> str:
    """The address of a partial result of part number `part`, counted over all rows."""
    index = function.add(function.multiply(part, len(split.rows)), number)
    return function.pointer("%workspace", "i64", index)


def _placed(function: Function, kernel: Kernel, row: str) -> LoopPosition:
    kept = collapse(kernel, range(len(kernel.kept)))
    at = function.unravel(row, [axis.size for axis in kept])
    return LoopPosition.origin(kernel).moved(function, kernel, kept, at)


def _write_parts(function: Function, kernel: Kernel, split: RowSplit) -> None:
    plan, rows = split.plan, split.rows
    lanes = lanes_for(kernel, plan.inner.size, LANES)
    roots = plan.passes[0].roots(kernel)
    sizes = [axis.size for axis in plan.outers]

    def along(place: LoopPosition, begin: str, end: str, totals: list[Value]) -> list[Value]:
        walk = Walk(Point(function, kernel, place), plan.inner, kernel.wide, roots, lanes, LANES)
        return reduce_along(walk, rows, begin, end, totals, plan.passes[0].results)

    def item(index: str, carried: list[Value]) -> list[Value]:
        row, part = function.unravel(index, (0, split.parts))
        place = _placed(function, kernel, row)
        totals = [reduction.start(reduction.total_type) for reduction in rows]
        if split.chunks > 1:
            outer, chunk = function.unravel(part, (0, split.chunks))
            begin = function.multiply(chunk, split.block)
            end = function.smaller(function.add(begin, split.block), plan.inner.size)
            moved = place.moved(function, kernel, plan.outers, function.unravel(outer, sizes))
            totals = along(moved, begin, end, totals)
        else:
            start = function.multiply(part, split.group)
            stop = function.smaller(function.add(start, split.group), split.outers)

            def stretch(outer: str, before: list[Value]) -> list[Value]:
                moved = place.moved(function, kernel, plan.outers, function.unravel(outer, sizes))
                return along(moved, "0", str(plan.inner.size), before)

            totals = function.loop(start, stop, 1, totals, stretch)
        for number, total in enumerate(totals):
            memory.store(function, total, _slot(function, split, index, number), total.type)
        return carried

    function.loop("%begin", "%end", 1, [], item)


def _write_rows(function: Function, kernel: Kernel, split: RowSplit) -> None:
    rows = split.rows

    def item(index: str, carried: list[Value]) -> list[Value]:
        first = function.multiply(index, split.parts)

        def part(number: str, before: list[Value]) -> list[Value]:
            at = function.add(first, number)
            found: list[Value] = []
            for slot, (reduction, total) in enumerate(zip(rows, before, strict=True)):
                one = memory.load(function, _slot(function, split, at, slot), total.type)
                found.append(reduction.combine(function, total, one))
            return found

        start = [reduction.start(reduction.total_type) for reduction in rows]
        totals = function.loop("0", str(split.parts), 1, start, part)
        point = Point(function, kernel, _placed(function, kernel, index))
        for reduction, total in zip(rows, totals, strict=True):
            point.known[reduction.value] = reduction.finish(function, total)
        for result in range(len(kernel.results)):
            if not kernel.is_whole(result):
                point.store(result)
        return carried

    function.loop("%begin", "%end", 1, [], item)
