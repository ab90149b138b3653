"""A rowwise and a colwise kernel over one domain in one walk: common operands are read once.

Blocks stay, and take rows in turns; a thread has the same columns of each of its rows, and keeps their sums in
registers. Groups of lanes that have rows at the same time add their sums from first to last, and the second phase of a
colwise kernel adds those of the blocks. The order follows from the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from aicf_mlir.codegen.cuda import columns as sums
from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    find,
    integer,
    pointer,
    reach,
    signature,
    size_of,
)
from aicf_mlir.codegen.cuda.column_schedules import reductions
from aicf_mlir.codegen.cuda.column_schedules import schedule as of_columns
from aicf_mlir.codegen.cuda.passes import plan_passes, registers
from aicf_mlir.codegen.cuda.row_schedules import WARP, RowSchedule, early
from aicf_mlir.codegen.cuda.row_schedules import schedule as of_rows
from aicf_mlir.codegen.cuda.rows import RowWriter
from aicf_mlir.codegen.cuda.text import ReductionText, Scope, Text, reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.column_sums import Together, together
from aicf_mlir.kernels.kernel import Code, Kernel, Phase, elements

THREADS = 512
"""The threads of a block, of which each multiprocessor has one; each thread has 128 registers."""
LEAST_LANES = 8
"""The fewest lanes of a row: a block adds the sums of all rows that it has at the same time."""
ROOM = 110
"""Registers of a thread for the elements of its row and the sums of its columns; the rest are for arithmetic."""
WIDE_ROOM = 96
"""The room for elements of 4 bytes or more: they are used in computations as they are read, and need no unpacking."""
RAGGED = 16
"""Fewer registers where the last vectors of a row are not one for each lane."""
SHARED = 48 << 10
"""Bytes of shared memory of a block."""


@dataclass(frozen=True)
class WalkSchedule:
    """The distribution of rows over persistent threads."""

    rows: RowSchedule
    """The schedule of rows, with at least one column and chunk: elements stay in registers from one pass to the next."""
    groups: int
    """Rows that a block has at the same time."""
    blocks: int
    ahead: bool
    """True if the next row is read while this one is computed."""
    keep: bool
    """True if operands that are the same for all rows stay in registers."""

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.rows.lanes * self.groups


def schedule(kernel: Kernel) -> tuple[Together, WalkSchedule] | None:
    """The fewest lanes a row whose registers hold it with its sums; None if a block has too few, or a row too little."""
    both = together(kernel)
    if not elements(kernel.domain) or not all(both.rows.wide[value] for value in both.fed):
        return None
    row = replace(of_rows(both.rows).walked(1), read_once=False)
    while row.lanes < min(row.vectors, WARP):
        row = replace(row, lanes=row.lanes * 2)
    if not row.columns or row.lanes < LEAST_LANES:
        return None
    read = early(both.rows, row)
    totals = sum(reduction(both.columns, value).bytes / 4 for value in reductions(both.columns))
    each = registers(both.rows, plan_passes(both.rows, True, both.fed), read) + totals
    waits = all(size_of(both.rows.operands[number].element) >= 4 for number in read)
    while (row := replace(row, chunks=-(-row.vectors // row.lanes))).lanes <= THREADS:
        less = RAGGED if row.vectors % row.lanes else 0
        if row.chunks * row.width * each <= (WIDE_ROOM if waits else ROOM) - less:
            break
        row = replace(row, lanes=row.lanes * 2)
    else:
        return None
    groups = THREADS // row.lanes
    while groups > 1 and shared(both, row, groups) > SHARED:
        groups //= 2
    if shared(both, row, groups) > SHARED:
        return None
    ahead = each + sum(size_of(both.rows.operands[number].element) / 4 for number in read)
    same = ahead + sum(
        size_of(tensor.element) / 4
        for number, (tensor, type_) in enumerate(zip(both.rows.operands, both.rows.body.args, strict=True))
        if not is_table(type_) and both.rows.wide[number] and number not in read
    )
    blocks = min(
        chip_of(kernel.target).processors * (THREADS // (row.lanes * groups)), -(-row.count // groups)
    )
    fits = [waits and row.chunks * row.width * needed <= ROOM - less for needed in (ahead, same)]
    return both, WalkSchedule(row, groups, blocks, *fits)


def shared(both: Together, row: RowSchedule, groups: int) -> int:
    """The bytes of shared memory of a block: the sums of its groups, and the values that the warps of a row exchange."""
    bytes_of = [reduction(both.columns, value).bytes for value in reductions(both.columns)]
    most = max(bytes_of, default=0) * prod(both.rows.reduced_shape) * groups if groups > 1 else 0
    exchanged = sum(reduction(both.rows, value).bytes for value in reductions(both.rows))
    return most + (2 * groups * (row.lanes // WARP) * exchanged if row.lanes > WARP else 0)


def code(both: Together, plan: WalkSchedule) -> Code:
    """The text and its two launches: the walk, and the sum over its blocks."""
    text, columns = Text(), both.columns
    first, second = f"{both.rows.symbol}_sums", f"{columns.symbol}_parts"
    with text.block(signature(both.rows, first, plan.threads)):
        WalkWriter(both, plan, text).write()
    breadth, threads = prod(columns.kept), WARP * sums.strands(columns)
    with text.block(signature(columns, second, threads)):
        sums.add_parts(text, columns, replace(of_columns(columns), parts=plan.blocks))
    phases = (
        Phase(first, plan.blocks, threads=plan.threads),
        Phase(second, -(-breadth // WARP), threads=threads),
    )
    return Code(str(text), phases, workspace(both, plan))


def workspace(both: Together, plan: WalkSchedule) -> int:
    """Bytes of the sums of all blocks."""
    return sums.places(both.columns, plan.blocks * prod(both.columns.kept))[1]


class WalkWriter(RowWriter):
    """Prints the first phase: rows in turns, and the sums of their columns."""

    def __init__(self, both: Together, plan: WalkSchedule, text: Text):
        super().__init__(both.rows, plan.rows, text, both.fed)
        self.both, self.turns = both, plan
        self.live = plan.rows.count % plan.groups != 0
        self.breadth = prod(both.rows.reduced_shape)
        varying = early(both.rows, plan.rows)
        used = {n for item in self.passes.passes for n in (*item.computed, *item.narrow)}
        operands = [n for n, type_ in enumerate(both.rows.body.args) if not is_table(type_) and n in used]
        self.by_row = [n for n in operands if not both.rows.wide[n]] if plan.ahead else []
        if plan.keep:
            self.fixed = {n for n in operands if both.rows.wide[n] and n not in varying}
        self.start: list[str] = list(self.bases)

    def write(self) -> None:
        """Write the statements of the function."""
        text, plan = self.text, self.turns
        begin(text)
        lanes, count = self.plan.lanes, self.plan.count
        counter = "unsigned" if count < 1 << 30 else "unsigned long long"
        text.add(f"const unsigned lane = threadIdx.x % {lanes}u, group = threadIdx.x / {lanes}u;")
        if lanes > WARP:
            text.add("unsigned turn = 0;")
        for value, of in self._sums():
            text.add(f"{of.type} t{value}[{self.plan.chunks}][{self.plan.width}];")
            with text.each("k", self.plan.chunks), text.each("j", self.plan.width):
                text.add(f"t{value}[k][j] = {of.identity};")
        for number in sorted(self.fixed):
            text.add(
                f"Vec<{self._stored(number)}, {self._neighbours(number)}> x{number}[{self.plan.chunks}];"
            )
        if self.fixed:
            with self._chunks() as place:
                for number in sorted(self.fixed):
                    fetch(text, self.kernel, place, number, self.plan.width, f"x{number}[k]")
        text.add(f"const {counter} begin = static_cast<{counter}>(blockIdx.x) * {plan.groups}u;")
        step = plan.blocks * plan.groups
        if plan.ahead:
            for number in self.early:
                kind = f"Vec<{self._stored(number)}, {self._neighbours(number)}>"
                text.add(f"{kind} n{number}[{self.plan.chunks}];")
            for number in self.by_row:
                text.add(f"{self._stored(number)} n{number};")
            with text.block(f"if (begin < {count}u)"):
                self._prefetch("begin", counter)
        with text.block(f"for ({counter} start = begin; start < {count}u; start += {step}u)"):
            self.first_row = "start + group"
            self.bases = list(self.start)
            self._one_row()
            if lanes > WARP:
                text.add("turn ^= 1u;")
        self._hand_on()

    def _sums(self) -> list[tuple[int, ReductionText]]:
        """For each reduction of the columns, its number and the text that makes it."""
        columns = self.both.columns
        return [(value, reduction(columns, value)) for value in reductions(columns)]

    def _narrow(self, operand: int) -> str:
        return f"widen(m{operand})" if operand in self.by_row else super()._narrow(operand)

    def _read_early(self) -> None:
        """Use the values that were read ahead, and read those of the next row."""
        text, plan = self.text, self.turns
        if not plan.ahead:
            return super()._read_early()
        with text.each("k", self.plan.chunks):
            for number in self.early:
                text.add(f"x{number}[k] = n{number}[k];")
        counter = "unsigned" if self.plan.count < 1 << 30 else "unsigned long long"
        step = plan.blocks * plan.groups
        with text.block(f"if (start + {step}u < {self.plan.count}u)"):
            self._prefetch(f"start + {step}u", counter)
        return None

    def _row(self) -> Coordinates:
        row = super()._row()
        for number in self.by_row:
            self.text.add(f"const {self._stored(number)} m{number} = n{number};")
        return row

    def _prefetch(self, first: str, counter: str) -> None:
        """Prefetch the row of this group among those that begin with `first`."""
        text, plan = self.text, self.plan
        last = f"{plan.count - 1}u"
        text.add(f"const {counter} mine = {first} + group;")
        text.add(
            f"const {counter} next = {f'mine < {plan.count}u ? mine : {last}' if self.live else 'mine'};"
        )
        row = find(text, plan.rows, "next", "q", integer(max(reach(plan.rows), plan.count)))
        for number in self.by_row:
            text.add(f"n{number} = {pointer(self.kernel, number)}[{row.offset(number)}];")
        for number in self.early:
            text.add(f"const auto b{number} = {pointer(self.kernel, number)} + ({row.offset(number)});")
        with self._chunks() as place:
            for number in self.early:
                fetch(text, self.kernel, place, number, plan.width, f"n{number}[k]", f"b{number}")

    def _feed(self, values: tuple[int, ...], scope: Scope) -> None:
        for (number, of), value in zip(self._sums(), self.both.fed, strict=True):
            if value in values:
                added = scope.added(f"t{number}[k][j]", value, of.combine)
                self.text.add(
                    f"t{number}[k][j] = {f'live ? {added} : t{number}[k][j]' if self.live else added};"
                )

    def _combine(self, reductions: tuple[int, ...]) -> None:
        """Combine over the lanes of the row, then over its warps; two turns have separate places, so that one barrier is
        enough.
        """
        text, kernel, lanes = self.text, self.kernel, self.plan.lanes
        if lanes <= WARP or not reductions:
            super()._combine(reductions)
            return
        warps = lanes // WARP
        for value in reductions:
            of = reduction(kernel, value)
            text.add(f"__shared__ {of.type} w{value}[2][{self.turns.groups}][{warps}];")
            text.add(f"s{value} = over_lanes<{of.combine}, {WARP}>(s{value});")
            text.add(f"if (lane % {WARP}u == 0) w{value}[turn][group][lane / {WARP}u] = s{value};")
        text.add("__syncthreads();")
        for value in reductions:
            of = reduction(kernel, value)
            text.add(f"const {of.type} v{value} = in_order<{of.combine}, {warps}>(w{value}[turn][group]);")
            self.scope.names[value] = f"v{value}"

    def _hand_on(self) -> None:
        """Write the sums of this block to the workspace; the sums of its groups are added from first to last."""
        text, plan, breadth, found = self.text, self.turns, self.breadth, self._sums()
        starts, _ = sums.places(self.both.columns, plan.blocks * breadth)
        if plan.groups > 1:
            most = max(of.bytes for _, of in found) * plan.groups * breadth
            text.add(f"__shared__ uint4 shared[{-(-most // 16)}];")
        for start, (value, of) in zip(starts, found, strict=True):
            part = (
                f"partial<{of.type}>(workspace, {start}ll) + static_cast<long long>(blockIdx.x) * {breadth}"
            )
            shared = f"reinterpret_cast<{of.type}*>(shared)"
            with self._chunks():
                text.add(f"Vec<{of.type}, {self.plan.width}> y;")
                with text.each("j", self.plan.width):
                    text.add(f"y.at[j] = t{value}[k][j];")
                target = f"{shared} + group * {breadth}u" if plan.groups > 1 else part
                text.add(f"store({target} + c * {self.plan.width}u, y);")
            if plan.groups == 1:
                continue
            text.add("__syncthreads();")
            with text.block(f"for (unsigned c = threadIdx.x; c < {breadth}u; c += {plan.threads}u)"):
                text.add(f"{of.type} sum = {shared}[c];")
                with text.each("other", plan.groups - 1):
                    text.add(f"sum = {of.combine}{{}}(sum, {shared}[(other + 1) * {breadth}u + c]);")
                text.add(f"({part})[c] = sum;")
            text.add("__syncthreads();")
