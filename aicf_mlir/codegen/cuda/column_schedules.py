"""The schedules of colwise kernels: the one that a kernel names or that is chosen by its chip, and the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import ClassVar

from aicf_mlir.codegen.cuda.access import size_of, varying, width
from aicf_mlir.codegen.cuda.scalars import REDUCERS
from aicf_mlir.codegen.cuda.text import reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Axis, Kernel, collapse
from aicf_mlir.kernels.schedule_text import ScheduleText, expect, powers

THREADS = 256
"""The threads of a block."""
WARP = 32
LEAST_ROWS = 4
"""The fewest rows of a thread before rows are divided among blocks."""
LEAST_BLOCKS = 4
"""The fewest blocks of a multiprocessor for which the threads of a block are along the columns."""
ROOM = 64
"""Registers of a thread for its sums, at most."""
IN_FLIGHT = 256
"""Bytes that a thread reads ahead, at most."""
MOST_BATCH = 8
NAMES = ("width", "across", "parts", "batch")


@dataclass(frozen=True)
class ColumnSchedule:
    """The distribution of rows and columns over blocks."""

    form: ClassVar = "columns"
    threads: ClassVar = THREADS
    """Of a block."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    width: int
    """Neighbouring columns of a thread."""
    across: int
    """The threads of a block along the columns, a power of two; the others are along the rows."""
    parts: int
    """Blocks that share the rows of a column."""
    batch: int
    """Rows of a thread whose reads are under way together."""

    @property
    def text(self) -> str:
        """What the kernel id says of it."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return str(
            ScheduleText(self.form, {n: number for n, number in numbers.items() if isinstance(number, int)})
        )

    @property
    def down(self) -> int:
        """Threads of a block that share a column."""
        return self.threads // self.across

    @property
    def height(self) -> int:
        """Rows."""
        return prod(axis.size for axis in self.rows)

    @property
    def breadth(self) -> int:
        """Columns."""
        return prod(axis.size for axis in self.columns)

    @property
    def vectors(self) -> int:
        """The number of vectors of columns."""
        return self.breadth // self.width

    @property
    def tiles(self) -> int:
        """The number of blocks along the columns."""
        return -(-self.vectors // self.across)


def schedule(kernel: Kernel) -> ColumnSchedule:
    """The schedule that a kernel of columns names, or else the one that is chosen for it."""
    return given(kernel, kernel.schedule) if kernel.schedule else chosen(kernel)


def draft(kernel: Kernel) -> ColumnSchedule:
    """Rows and columns, with as many neighbours to a thread as it can take."""
    rows = collapse(kernel, list(kernel.reduced_dims))
    columns = collapse(kernel, range(kernel.reduced, len(kernel.domain)))
    axes = [*rows, *columns]
    wide = width(kernel, axes, len(axes) - 1, varying(kernel, axes)) if columns else 1
    needed = sum(reduction(kernel, value).bytes for value in reductions(kernel)) // 4
    while wide > 1 and (columns[-1].size % wide or wide * needed > ROOM):
        wide //= 2
    return ColumnSchedule(tuple(rows), tuple(columns), wide, 1, 1, 1)


def chosen(kernel: Kernel) -> ColumnSchedule:
    """Parts so that the blocks fill a chip, while each thread has a few rows; of few rows all threads along the columns."""
    plan = draft(kernel)
    across = 1
    while across < min(WARP, plan.vectors):
        across *= 2
    plan = replace(plan, across=across)
    while plan.across < THREADS and plan.down * LEAST_ROWS > plan.height:
        wider = replace(plan, across=2 * plan.across)
        if wider.tiles < LEAST_BLOCKS * chip_of(kernel.target).processors:
            break
        plan = wider
    parts = min(
        2 * chip_of(kernel.target).processors // max(plan.tiles, 1), plan.height // (plan.down * LEAST_ROWS)
    )
    columns = plan.columns
    read = sum(
        size_of(tensor.element) * (plan.width if columns and columns[-1].strides[number] else 1)
        for number, tensor in enumerate(kernel.operands)
        if kernel.wide[number] and not is_table(kernel.body.args[number])
    )
    batch = 4
    while batch > 1 and batch * read > IN_FLIGHT:
        batch //= 2
    return replace(plan, parts=max(parts, 1), batch=batch)


def given(kernel: Kernel, text: str) -> ColumnSchedule:
    """The schedule of this text; SelectionError where the kernel has none such."""
    found = ScheduleText.parse(text, {"columns": NAMES})
    widest = draft(kernel)
    expect(text, "width", found["width"], list(powers(widest.width)), " for these tensors")
    expect(text, "across", found["across"], list(powers(THREADS)))
    expect(text, "parts", found["parts"], range(1, max(widest.height, 1) + 1))
    expect(text, "batch", found["batch"], list(powers(MOST_BATCH)))
    return replace(widest, **found.numbers)


def candidates(kernel: Kernel) -> Iterator[ColumnSchedule]:
    """The schedule that is chosen, then others."""
    first, widest = chosen(kernel), draft(kernel)
    yield first
    rows = max(widest.height, 1)
    shared = sorted({1, *(min(max(number, 1), rows) for number in (first.parts // 2, 2 * first.parts, 8))})
    for wide, across, parts, batch in product(
        powers(widest.width), (8, 16, WARP, THREADS), sorted({first.parts, *shared}), (1, 4)
    ):
        plan = replace(widest, width=wide, across=across, parts=parts, batch=batch)
        if plan != first:
            yield plan


def reductions(kernel: Kernel) -> list[int]:
    """The values that are reductions."""
    first = len(kernel.body.args)
    return [first + n for n, line in enumerate(kernel.body.lines) if line.op in REDUCERS]
