"""The schedules of rowwise kernels: how rows are divided among threads. They follow from the shapes alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from aicf_mlir.codegen.cuda.access import size_of, varying, width
from aicf_mlir.codegen.cuda.passes import plan_passes, registers
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Axis, Kernel, Tensor, collapse, strides_along
from aicf_mlir.kernels.schedule_text import ScheduleText

WARP = 32
THREADS = 64
"""The threads of a block if its warps, or parts of warps, have rows of their own."""
MOST_THREADS = 1024
ROOM = {MOST_THREADS: 24}
"""The registers of a thread for the elements of its row, by threads of a block; the rest are for arithmetic."""
USUAL_ROOM = 32
ONE_VECTOR = 4
"""Elements of a thread that are no more than a vector of f32: there rows of several tensors need no more lanes."""
FEWEST = 8
"""The lanes of a row that stay where rows are short and many: their vectors are a line of a cache, and a warp has four rows."""
LOOKED_UP = 4
"""Neighbours of a thread where every operand is looked up: they share the arithmetic of all but their last index."""
MOST_AHEAD = 16
"""The vectors that a thread reads before it uses them, at most."""
MOST_CHUNKS = 32
"""The vectors of a row that a thread has one behind the other in the text, where it keeps none of them."""
ASIDE = 3 << 10
"""Bytes beside the strips of a block: what warps exchange, and what the system takes."""


@dataclass(frozen=True)
class RowSchedule:
    """The distribution of rows over threads."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    width: int
    """Neighbours that a thread takes at once: of its row, or rows where they lie side by side."""
    lanes: int
    """Threads that share a row, a power of two."""
    chunks: int
    """The vectors of a thread, kept in registers; 0 if it walks the row once for each pass."""
    block: int = THREADS
    """Threads of a block whose warps, or parts of warps, have rows of their own; otherwise a row has a block."""
    ahead: int = 4
    """The vectors that a thread reads before it uses them, if it walks the row."""
    read_once: bool = False
    """True if the operands need not stay in the caches."""
    strips: tuple[tuple[int, int], ...] = ()
    """Operands that each thread keeps in shared memory from its first walk over the row to the last, with the byte at which each
    begins.
    """
    shared: int = 0
    """The bytes of all strips."""
    side: int = 1
    """Threads of a block that have different rows, where rows lie side by side (codegen/cuda/beside_schedules.py)."""
    parts: int = 1
    """Blocks that share a row, each walk over it a launch (codegen/cuda/split_rows.py)."""

    def walked(self, lanes: int, ahead: int = 4) -> RowSchedule:
        """The same rows, each walked over by so many lanes once for each pass."""
        return replace(self, lanes=lanes, chunks=0, ahead=ahead, strips=(), shared=0)

    @property
    def threads(self) -> int:
        """The threads of a block."""
        if self.side > 1:
            return self.lanes * self.side
        return max(self.lanes, self.block) if self.lanes <= WARP else self.lanes

    @property
    def rows_per_block(self) -> int:
        """Rows that a block has at the same time."""
        return self.threads // self.lanes * self.neighbours

    @property
    def neighbours(self) -> int:
        """Rows of a thread."""
        return self.width if self.side > 1 else 1

    @property
    def text(self) -> str:
        """What the kernel id says of it: what does not matter is left out."""
        numbers = {"width": self.width, "lanes": self.lanes, "chunks": self.chunks}
        if self.side == 1 and self.lanes <= WARP:
            numbers["block"] = self.block
        if not self.chunks and self.parts == 1:
            numbers["ahead"] = self.ahead
        numbers |= {"once": int(self.read_once), "shared": int(bool(self.strips))}
        for name, neutral in (("side", self.side), ("parts", self.parts)):
            numbers[name] = neutral if neutral > 1 else 0
        return str(ScheduleText("rows", numbers))

    @property
    def count(self) -> int:
        """Rows."""
        return prod(axis.size for axis in self.rows)

    @property
    def vectors(self) -> int:
        """The vectors of a row; the elements of one where rows lie side by side."""
        return prod(axis.size for axis in self.columns) * self.neighbours // self.width


def draft(kernel: Kernel) -> RowSchedule:
    """Rows and columns, with as many neighbours to a thread as it can take, and one lane."""
    reduced = set(kernel.reduced_dims)
    rows = collapse(kernel, [dim for dim in range(len(kernel.domain)) if dim not in reduced])
    columns = columns_of(kernel)
    axes = [*rows, *columns]
    wide = 1
    if columns and all(map(is_table, kernel.body.args)):
        wide = LOOKED_UP
    elif columns:
        wide = width(kernel, axes, len(axes) - 1, varying(kernel, axes))
    while columns and columns[-1].size % wide:
        wide //= 2
    return RowSchedule(tuple(rows), tuple(columns), wide, 1, 1)


def schedule(kernel: Kernel) -> RowSchedule:
    """The fewest threads a row that hold it in registers and, all rows together, fill a chip; a block or more has a row."""
    plan = draft(kernel)
    while plan.lanes < min(plan.vectors, WARP):
        plan = replace(plan, lanes=plan.lanes * 2)
    passes = plan_passes(kernel, hold=True)
    read = early(kernel, plan)
    each = registers(kernel, passes, read) * plan.width
    moved = [
        *(kernel.operands[number] for number in read),
        *(tensor for number, tensor in enumerate(kernel.results) if kernel.is_whole(number)),
    ]
    filled = enough_of(kernel)
    enough = filled.get(max(len(moved), min(filled)), sys.maxsize)
    least = max(filled.values())
    while plan.lanes > FEWEST and 2 * plan.count * FEWEST >= max(filled.values()) and is_spare(plan, each):
        plan = replace(plan, lanes=plan.lanes // 2)
    while True:
        plan = replace(plan, chunks=max(1, -(-plan.vectors // plan.lanes)))
        fits = plan.chunks * each <= ROOM.get(plan.lanes, USUAL_ROOM)
        fills = plan.count * plan.lanes >= (least if plan.chunks * plan.width <= ONE_VECTOR else enough)
        if fits and (plan.chunks == 1 or fills or plan.lanes == MOST_THREADS):
            if not each and plan.chunks > MOST_CHUNKS:
                return plan.walked(plan.lanes)
            return replace(plan, read_once=len(read) == 1 and bytes_of(moved) in crowded(kernel))
        if plan.lanes == MOST_THREADS:
            return in_shared(kernel, plan.walked(plan.lanes), read)
        plan = replace(plan, lanes=plan.lanes * 2)


def enough_of(kernel: Kernel) -> dict[int, int]:
    """The threads that fill the chip, once and four times, by the number of tensors that are read and written as rows. With more
    tensors each thread has one vector, or it would wait for some before it requests the next.
    """
    filling = chip_of(kernel.target).filling
    return {2: filling, 3: 4 * filling}


def crowded(kernel: Kernel) -> range:
    """The range of bytes read and written, from half a cache of the chip to more than all of it, in which the one operand should
    leave the room to its results. (Two operands, or more bytes, were slower with it.)
    """
    cache = chip_of(kernel.target).cache
    return range(cache * 12 // 25, cache * 8 // 5)


def is_spare(plan: RowSchedule, each: float) -> bool:
    """True if half of the lanes hold a row too, in no more vectors than are read at the same time."""
    chunks = -(-plan.vectors // (plan.lanes // 2))
    return chunks <= plan.ahead and chunks * each <= USUAL_ROOM


def columns_of(kernel: Kernel) -> list[Axis]:
    """The axes of a row; where no tensor has neighbours along the last dimension, in the order in which they lie in memory."""
    dims = list(kernel.reduced_dims)
    found = collapse(kernel, dims)
    if len(found) > 1 and 1 not in found[-1].strides:
        return collapse(kernel, sorted(dims, key=lambda dim: -max(strides_along(kernel, dim))))
    return found


def in_shared(kernel: Kernel, plan: RowSchedule, read: Iterable[int]) -> RowSchedule:
    """The plan of a row that is walked over more than once: what differs from row to row is read from memory once, if there is
    room. Two blocks of half the threads have a processor if two rows fit.
    """
    walks = plan_passes(kernel, hold=False).passes
    strips: list[tuple[int, int]] = []
    nbytes = 0
    for number in read:
        if sum(number in walk.computed for walk in walks) > 1 and plan.columns[-1].strides[number] == 1:
            strips.append((number, nbytes))
            nbytes += -(-plan.vectors * plan.width * size_of(kernel.operands[number].element) // 16) * 16
    room = chip_of(kernel.target).shared_of_block
    if not strips or nbytes + ASIDE > room:
        return plan
    lanes = MOST_THREADS // 2 if 2 * (nbytes + ASIDE) <= room else MOST_THREADS
    return replace(plan, lanes=lanes, strips=tuple(strips), shared=nbytes)


def lying(kernel: Kernel, plan: RowSchedule) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """What a kernel moves row by row, operands and then results by number: where neighbours in memory are elements of other rows,
    and where they are elements of one row.
    """
    if not plan.rows or not plan.columns:
        return {}, {}
    down, along = plan.rows[-1].strides, plan.columns[-1].strides
    tensors = (*kernel.operands, *kernel.results)
    moved = [*early(kernel, plan)]
    moved += [len(kernel.operands) + n for n in range(len(kernel.results)) if kernel.is_whole(n)]
    return (
        {n: tensors[n] for n in moved if down[n] == 1 != along[n]},
        {n: tensors[n] for n in moved if along[n] == 1},
    )


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The bytes of tensors in memory, where an element that repeats is stored once."""
    total = 0
    for tensor in tensors:
        sizes = (size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if stride)
        total += prod(sizes) * size_of(tensor.element)
    return total


def early(kernel: Kernel, plan: RowSchedule) -> list[int]:
    """Operands that differ from row to row: they are read before anything is computed."""
    return [
        number
        for number, type_ in enumerate(kernel.body.args)
        if not is_table(type_)
        and kernel.wide[number]
        and (plan.count == 1 or any(axis.strides[number] and axis.size > 1 for axis in plan.rows))
    ]
