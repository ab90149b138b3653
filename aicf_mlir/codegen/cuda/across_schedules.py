"""The schedules of rows that lie across: their neighbours in memory are elements of other rows, and blocks share each row.

So are the channels of images whose channels come last, which a batch norm reduces over all images and positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from aicf_mlir.codegen.cuda.access import size_of, tensors, varying, width
from aicf_mlir.codegen.cuda.column_schedules import NAMES as COLUMNS
from aicf_mlir.codegen.cuda.column_schedules import WARP, ColumnSchedule
from aicf_mlir.codegen.cuda.moments import Round, rounds_of
from aicf_mlir.codegen.cuda.text import reduction
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Kernel, collapse
from aicf_mlir.kernels.schedule_text import ScheduleText, expect, powers

THREADS = 512
"""The threads of a block."""
LINE = 128
"""Bytes of neighbouring rows that a block reads of each element."""
IN_FLIGHT = 128
"""Bytes that a thread reads ahead, at most."""
MOST_BATCH = 8
ROOM = 96
"""Registers of a thread for the sums of its rows, for what is the same along them, and for what it reads ahead."""
ASIDE = 2 << 10
"""Bytes of shared memory beside what a block exchanges and keeps."""
NAMES = (*COLUMNS, "kept")


@dataclass(frozen=True)
class AcrossSchedule(ColumnSchedule):
    """The distribution of rows that lie across, and of their elements, over blocks.

    In memory they are `columns`, and their elements `rows`. The blocks that share a column meet after each walk but the last.
    """

    form: ClassVar = "across"
    threads: ClassVar = THREADS

    kept: int
    """Elements of each of its columns that a thread keeps in shared memory from its first walk to the last."""

    @property
    def tile(self) -> int:
        """Columns of a block."""
        return self.across * self.width

    @property
    def each(self) -> int:
        """Elements of a part of a column; the last part may have fewer."""
        return -(-self.height // self.parts)

    @property
    def most(self) -> int:
        """The elements of each of its columns that a thread has."""
        return -(-self.each // self.down)


def streams(kernel: Kernel, item: Round) -> list[int]:
    """The tensors that a walk reads for each element: operands, and results of walks before it."""
    count = len(kernel.operands)
    read = [v for v in item.computed if v < count and not is_table(kernel.body.args[v])]
    return read + sorted({count + number for _, number in item.again})


def read_again(kernel: Kernel) -> list[int]:
    """The tensors whose elements a walk has, and a later one reads."""
    items, count = rounds_of(kernel), len(kernel.operands)
    found: list[int] = []
    for number in range(count + len(kernel.results)):
        first = next((n for n, item in enumerate(items) if number in streams(kernel, item)), len(items))
        before = [n for n, item in enumerate(items) if number - count in item.written]
        later = any(number in streams(kernel, item) for item in items[min([first, *before]) + 1 :])
        found += [number] if later else []
    return found


def neighbours(plan: AcrossSchedule, tensor: int) -> int:
    """How many neighbours of a tensor a thread has of each element: one where all rows have the same."""
    return plan.width if plan.columns and plan.columns[-1].strides[tensor] else 1


def vector_bytes(kernel: Kernel, plan: AcrossSchedule, tensor: int) -> int:
    """The bytes of these neighbours."""
    return size_of(tensors(kernel)[tensor].element) * neighbours(plan, tensor)


def draft(kernel: Kernel) -> AcrossSchedule:
    """Rows and columns, with as many neighbours to a thread as it can take."""
    rows = collapse(kernel, list(kernel.reduced_dims))
    columns = collapse(kernel, list(kernel.kept_dims))
    axes = [*rows, *columns]
    wide = width(kernel, axes, len(axes) - 1, varying(kernel, axes)) if columns else 1
    while wide > 1 and (columns[-1].size % wide or wide * registers(kernel) > ROOM - IN_FLIGHT // 8):
        wide //= 2
    return AcrossSchedule(tuple(rows), tuple(columns), wide, 1, 1, 1, 0)


def registers(kernel: Kernel) -> int:
    """Of one row, for what a walk adds up and for what is the same along the row."""
    most = 0
    for item in rounds_of(kernel):
        sums = sum(reduction(kernel, value).bytes for value in item.reductions) // 4
        sums += sum(3 * size_of(kernel.body.type(value)) // 4 for value in item.moments)
        most = max(most, sums + len(item.narrow))
    return most


def room(kernel: Kernel, plan: AcrossSchedule) -> int:
    """Elements of each of its rows that a thread can keep, of all tensors that are read again."""
    each = THREADS * sum(vector_bytes(kernel, plan, n) for n in read_again(kernel))
    left = chip_of(kernel.target).shared_of_block - exchanged(kernel, plan) - ASIDE
    return max(0, min(plan.most, left // each)) if each else 0


def largest(kernel: Kernel) -> int:
    """Bytes of the largest sum."""
    items = rounds_of(kernel)
    sizes = [reduction(kernel, value).bytes for item in items for value in item.reductions]
    sizes += [size_of(kernel.body.type(value)) for item in items for value in item.moments]
    return max(sizes, default=1)


def passed(kernel: Kernel, plan: AcrossSchedule) -> int:
    """Bytes of shared memory that the threads of a block exchange one sum by."""
    return largest(kernel) * max(THREADS, THREADS // WARP * plan.tile)


def exchanged(kernel: Kernel, plan: AcrossSchedule) -> int:
    """The same, with the sums of the block's rows, and what they are taken from, after it."""
    values = sum(len(item.reductions) + 3 * len(item.moments) for item in rounds_of(kernel))
    return passed(kernel, plan) + largest(kernel) * values * plan.tile


def lie_across(kernel: Kernel) -> bool:
    """True if the neighbours of each element, of whatever a walk reads or writes, are in other rows."""
    plan = draft(kernel)
    if not plan.columns or not plan.rows or not plan.breadth or not plan.height:
        return False
    moved = {n for item in rounds_of(kernel) for n in streams(kernel, item)}
    moved = {n for n in moved if any(axis.strides[n] for axis in plan.columns)}
    moved |= {len(kernel.operands) + n for n in range(len(kernel.results)) if kernel.is_whole(n)}
    return bool(moved) and all(plan.columns[-1].strides[n] == 1 for n in moved)


def chosen(kernel: Kernel) -> AcrossSchedule:
    """A line of neighbouring rows to a block, and as many blocks as the chip has processors."""
    plan, items = draft(kernel), rounds_of(kernel)
    read = {n for item in items for n in streams(kernel, item)}
    size = max((size_of(tensors(kernel)[n].element) for n in read), default=1)
    across = 1
    while across < min(WARP, max(plan.vectors, 1), max(LINE // (plan.width * size), 1)):
        across *= 2
    plan = replace(plan, across=across)
    parts = min(chip_of(kernel.target).processors // max(plan.tiles, 1), -(-plan.height // plan.down))
    plan = replace(plan, parts=max(parts, 1))
    plan = replace(plan, parts=max(-(-plan.height // max(plan.each, 1)), 1))  # none is empty
    flight = max(sum(vector_bytes(kernel, plan, n) for n in streams(kernel, item)) for item in items)
    batch = MOST_BATCH
    left = min(IN_FLIGHT, 4 * (ROOM - plan.width * registers(kernel)))
    while batch > 1 and (batch * flight > left or batch >= 2 * plan.most):
        batch //= 2
    return replace(plan, batch=batch, kept=room(kernel, plan))


def schedule(kernel: Kernel) -> AcrossSchedule:
    """The schedule that a colwise kernel which goes on names, or else the one that is chosen for it."""
    return given(kernel, kernel.schedule) if kernel.schedule else chosen(kernel)


def has_across(kernel: Kernel) -> bool:
    """True if rows that lie across go on after a reduction, so that blocks may share them."""
    return (
        not any(map(is_table, kernel.body.args))
        and max(kernel.body.stages, default=0) > 0
        and lie_across(kernel)
    )


def given(kernel: Kernel, text: str) -> AcrossSchedule:
    """The schedule of this text; SelectionError where the kernel has none such."""
    found = ScheduleText.parse(text, {"across": NAMES})
    if not (kernel.goes_on or has_across(kernel)):
        raise SelectionError(
            f"schedule {text!r}: the rows of this kernel do not lie across, or nothing follows a reduction"
        )
    widest = draft(kernel)
    expect(text, "width", found["width"], list(powers(widest.width)), " for these tensors")
    expect(text, "across", found["across"], list(powers(WARP)))
    plan = replace(widest, width=found["width"], across=found["across"])
    most = max(1, chip_of(kernel.target).processors // max(plan.tiles, 1))
    allowed = [n for n in range(1, most + 1) if n == max(1, -(-plan.height // max(1, -(-plan.height // n))))]
    expect(text, "parts", found["parts"], allowed)
    plan = replace(plan, parts=found["parts"])
    expect(text, "batch", found["batch"], list(powers(MOST_BATCH)))
    expect(text, "kept", found["kept"], range(room(kernel, plan) + 1))
    return replace(plan, batch=found["batch"], kept=found["kept"])


def candidates(kernel: Kernel, first: AcrossSchedule) -> Iterator[AcrossSchedule]:
    """Others than the one that is chosen."""
    for across in (4, 8, 16, WARP):
        plan = replace(first, across=across, parts=1)
        if plan.tile > THREADS:
            continue
        for parts in sorted({1, 3, max(1, chip_of(kernel.target).processors // max(plan.tiles, 1))}):
            found = replace(plan, parts=max(min(parts, plan.height), 1))
            found = replace(found, parts=max(-(-found.height // max(found.each, 1)), 1))
            for batch in (1, 4):
                for kept in {0, room(kernel, found)}:
                    if (made := replace(found, batch=batch, kept=kept)) != first:
                        yield made
