"""The schedules of rows that lie side by side: their neighbours in memory are elements of other rows.

So are sums over a middle dimension. A thread has as many neighbouring rows as one access reads, and walks down their elements.
"""

from __future__ import annotations

from dataclasses import replace

from aicf_mlir.codegen.cuda.access import size_of, varying, width
from aicf_mlir.codegen.cuda.passes import Passes, plan_passes, registers
from aicf_mlir.codegen.cuda.row_schedules import (
    MOST_AHEAD,
    MOST_THREADS,
    ROOM,
    USUAL_ROOM,
    WARP,
    RowSchedule,
    bytes_of,
    draft,
    early,
    enough_of,
    lying,
)
from aicf_mlir.codegen.cuda.text import reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.schedule_text import powers

SIDE = WARP
"""The fewest threads of a block that have different rows."""
MOST_SIDE = 256
THREADS = 128
"""The threads of a block that has so many rows, unless more threads share a row."""
FEW, SHORT = 16, 64
"""Fewer neighbouring rows than this lie side by side if they are short: then the elements of all of them are a few lines."""
FEWEST = 4
"""Fewer neighbouring rows than this do not lie side by side."""
MOST_LANES = 16
"""Threads that share several neighbouring rows, at most; more threads have fewer neighbours each."""
FULL = 4
"""The neighbours of a thread from which on more of them do not make up for fewer threads."""
RESIDENT = 1024
"""The chip is filled by blocks of this many threads, if they are at least so many."""
AT_ONCE = 8
"""The elements of a row that a thread reads at once: if it has no more, more threads would read no more at the same time."""
SUMS = 32
"""Registers of a thread for the sums of its rows and for what is the same along them."""
IN_FLIGHT = 128
"""Bytes that a thread reads ahead, at most."""
MOST_TEXT = 2048
"""Operations that the text of a walk has one after the other, at most: of so many elements as are read ahead."""
EXCHANGED = 40 << 10
"""Bytes of shared memory by which the threads that share rows exchange sums."""


def draft_beside(kernel: Kernel) -> RowSchedule:
    """Rows and columns, with as many neighbouring rows to a thread as it can take."""
    plan = draft(kernel)
    wide = 1
    if plan.rows and plan.columns and not all(map(is_table, kernel.body.args)):
        axes = [*plan.columns, *plan.rows]
        wide = width(kernel, axes, len(axes) - 1, varying(kernel, axes))
        while wide > 1 and (plan.rows[-1].size % wide or wide * of_row(kernel) > SUMS):
            wide //= 2
    return RowSchedule(plan.rows, plan.columns, wide, 1, 0, side=SIDE)


def of_row(kernel: Kernel) -> int:
    """Registers of one row for what a walk adds up, and for what is the same along the row."""
    walks = plan_passes(kernel, hold=True).passes
    return max(
        len(walk.narrow) + sum(reduction(kernel, value).bytes for value in walk.reductions) // 4
        for walk in walks
    )


def beside(kernel: Kernel) -> RowSchedule | None:
    """The schedule of rows that lie side by side; None where most bytes are not of such rows.

    The widest neighbours of which there are threads enough, with few threads a row: a row of 2 to 64 elements has one thread.
    """
    widest = draft_beside(kernel)
    if not widest.rows or not widest.columns or not widest.vectors or not is_broad(widest):
        return None
    of_rows, of_columns = (bytes_of(tensors.values()) for tensors in lying(kernel, widest))
    if of_rows <= of_columns:
        return None
    passes = plan_passes(kernel, hold=True)
    filling = chip_of(kernel.target).filling
    found = [divided(kernel, replace(widest, width=wide), passes) for wide in powers(widest.width)][::-1]
    for plan, narrower in zip(found, [*found[1:], None], strict=True):
        blocks = plan.count // plan.rows_per_block
        if plan.lanes > MOST_LANES or blocks * RESIDENT < filling or not exchanges(kernel, plan):
            continue
        if plan.lanes > 1 and narrower is not None and narrower.lanes == 1:
            return narrower
        return plan
    return found[-1] if exchanges(kernel, found[-1]) else None


def is_broad(plan: RowSchedule) -> bool:
    """True if so many rows lie next to each other that threads read whole lines."""
    neighbours = plan.rows[-1].size
    return neighbours >= FEW or (neighbours >= FEWEST and plan.vectors <= SHORT)


def divided(kernel: Kernel, plan: RowSchedule, passes: Passes) -> RowSchedule:
    """The fewest threads a row that fill the chip, and hold a row that is walked again."""
    read = early(kernel, plan)
    each = registers(kernel, passes, read) * plan.width
    again = sum(bool(walk.reductions or walk.written) for walk in passes.passes) > 1
    enough = enough_of(kernel)[2] // min(plan.width, FULL)
    while 2 * plan.lanes <= min(plan.vectors, WARP):
        chunks = -(-plan.vectors // plan.lanes)
        fills = plan.count // plan.width * plan.lanes >= enough or chunks <= AT_ONCE
        if fills and (not again or chunks * each <= USUAL_ROOM):
            break
        plan = replace(plan, lanes=2 * plan.lanes)
    while (
        plan.threads < THREADS and plan.count >= 2 * plan.rows_per_block * chip_of(kernel.target).processors
    ):
        plan = replace(plan, side=2 * plan.side)
    chunks = -(-plan.vectors // plan.lanes)
    if again and chunks * each <= ROOM.get(plan.threads, USUAL_ROOM):
        return replace(plan, chunks=chunks)
    moved = sum(size_of(kernel.operands[number].element) for number in read) * plan.width
    work = len(kernel.body.lines) * plan.width
    ahead = MOST_AHEAD
    while ahead > 1 and (ahead * moved > IN_FLIGHT or ahead * work > MOST_TEXT or ahead >= 2 * chunks):
        ahead //= 2
    return replace(plan, ahead=ahead)


def sides(lanes: int) -> list[int]:
    """The threads of a block that may have different rows, where so many threads share each row."""
    return [side for side in powers(MOST_SIDE, SIDE) if side * lanes <= MOST_THREADS]


def exchanges(kernel: Kernel, plan: RowSchedule) -> bool:
    """True if shared memory has room for what the threads that share rows exchange."""
    passes = plan_passes(kernel, hold=True).passes
    found = (reduction(kernel, value) for walk in passes for value in walk.reductions)
    return plan.lanes == 1 or sum(of.bytes for of in found) * plan.threads * plan.width <= EXCHANGED
