"""Row kernels with column sums in one walk: common operands are read once.

Rows are shared out in the blocks of a column kernel. The values that sums take are added to the partial row of the
block, which stays in the nearest cache while the block's rows are walked over; the partial rows are combined in order.
"""

from __future__ import annotations

from dataclasses import replace

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.columns import ROWS, Columns, combining_phase, partial_bytes
from aicf_mlir.codegen.llvm.memory import STORED
from aicf_mlir.codegen.llvm.point import Point
from aicf_mlir.codegen.llvm.row_forms import schedule_of
from aicf_mlir.codegen.llvm.rows import RowPlan, RowWriter, row_plan, row_workspace
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import LANES, grain_of
from aicf_mlir.kernels.column_sums import PartKernel, Together, together
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, elements

LEAST_BLOCKS = 8
"""The fewest blocks of rows: fewer leave threads without work, and data that small is in a cache in any case."""


def walks_together(kernel: Kernel) -> bool:
    """True if one walk computes both: from some blocks of rows on, whose values wait on the stack. Sums that follow a reduction
    read its results after all rows.
    """
    if kernel.body.late_sums:
        return False
    both = together(kernel)
    plan, columns = row_plan(both.rows, both.fed), _columns(both)
    if not elements(kernel.domain) or columns.blocks < LEAST_BLOCKS or schedule_of(both.rows) is not None:
        return False
    alike = _shape(plan.outers, plan.inner) == _shape(columns.outers, columns.inner)
    return alike and row_workspace(both.rows, both.fed) == 0


def _columns(both: Together) -> Columns:
    """The columns, in blocks of as many rows as are shared out."""
    return replace(Columns.of(both.columns), height=ROWS)


def _shape(outers: tuple[Axis, ...], inner: Axis) -> list[tuple[tuple[int, ...], int]]:
    return [(axis.dims, axis.size) for axis in (*outers, inner)]


def walk_workspace(kernel: Kernel) -> int:
    """Bytes of the partial rows."""
    return partial_bytes(_columns(together(kernel)))


def walk_phases(kernel: Kernel) -> list[tuple[PartKernel, Phase, Function]]:
    """The phase that walks over blocks of rows, and the one that combines their sums; each with its part."""
    both = together(kernel)
    columns = _columns(both)
    function = Function()
    plan = row_plan(both.rows, both.fed)
    WalkWriter(function, both, plan, columns).write()
    walk = Phase(f"{both.rows.symbol}_0", columns.blocks, grain_of(both.rows, plan.extent * ROWS))
    return [(both.rows, walk, function), (both.columns, *combining_phase(columns))]


class WalkWriter(RowWriter):
    """Writes the loop over blocks of rows."""

    def __init__(self, function: Function, both: Together, plan: RowPlan, columns: Columns) -> None:
        super().__init__(function, both.rows, plan)
        self.columns = columns
        self.block = "0"

    def write(self) -> None:
        """Write all blocks from %begin to %end."""
        function, columns = self.function, self.columns

        def item(block: str, carried: list[Value]) -> list[Value]:
            self.block = block
            self._clear()
            first = function.multiply(block, ROWS)
            self.rows(first, function.smaller(function.add(first, ROWS), columns.row_count))
            return carried

        function.loop("%begin", "%end", 1, [], item)

    def _clear(self) -> None:
        """Clear the partial rows of the block; the rows of one sum are stored one after the other."""
        for number in range(len(self.columns.rows)):
            self._clear_sum(number)

    def _clear_sum(self, number: int) -> None:
        function, columns = self.function, self.columns
        row, base = columns.rows[number], columns.partial(function, number, self.block, "0")

        def clear(column: str, carried: list[Value]) -> list[Value]:
            place = function.pointer(base, STORED[row.type], column)
            memory.store(function, row.start(row.type, LANES), place, row.type, LANES)
            return carried

        function.loop("0", str(columns.outer_count * columns.width), LANES, [], clear)

    def feed(self, point: Point, fed: tuple[int, ...], outer: str) -> None:
        """Add the values `fed` of a point to the partial rows."""
        function, lanes = self.function, point.lanes
        assert lanes is not None
        for number, value in enumerate(fed):
            row = self.columns.rows[number]
            start = self.columns.partial(function, number, self.block, outer)
            place = function.pointer(start, STORED[row.type], lanes.index)
            before = memory.load(function, place, row.type, point.count)
            memory.store(function, row.combine(function, before, point[value]), place, row.type, point.count)
