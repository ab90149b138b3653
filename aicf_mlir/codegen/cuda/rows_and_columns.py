"""A rowwise and a colwise kernel over one domain in one walk: what both read is read once.

Blocks stay, and take rows in turns; a thread has the same columns of each of its rows, and keeps their sums in
registers. Groups of lanes that have rows at the same time add their sums from first to last, and the second phase of a
colwise kernel adds those of the blocks. The order follows from the shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from aicf_mlir.codegen.cuda import columns as sums
from aicf_mlir.codegen.cuda.access import (
    Place,
    fetch,
    find,
    head,
    integer,
    parameters,
    pointer,
    reach,
    skip,
)
from aicf_mlir.codegen.cuda.rows import WARP, RowSchedule, RowWriter, early
from aicf_mlir.codegen.cuda.scalars import STORED
from aicf_mlir.codegen.cuda.text import ReductionText, Scope, Text, closure, reduction
from aicf_mlir.codegen.kernel import Code, Kernel, Phase
from aicf_mlir.ir.body import Body, is_table
from aicf_mlir.ir.formula import Builder

SHARED = 48 << 10
"""Bytes of shared memory of a block."""


@dataclass(frozen=True)
class Pair:
    """Two kernels as one launch: the operands of `rows`, those that `columns` alone has, both results."""

    rows: Kernel
    """All operands; what `columns` sums over the rows is among the values of its body."""
    columns: Kernel | None
    """None where the rows are alone."""
    which: tuple[int, ...]
    """By operand of `columns`, which operand of `rows` it is."""
    fed: tuple[int, ...]
    """By reduction of `columns`, the value of the body of `rows` that it takes."""

    @property
    def in_place(self) -> frozenset[tuple[int, int]]:
        """Pairs (result of the rows, operand) that may be the very same memory: not what the second phase reads again."""
        if self.columns is None:
            return self.rows.in_place
        behind = closure(self.columns, self.columns.body.results)
        again = {self.which[value] for value in behind if value < len(self.which)}
        return frozenset(places for places in self.rows.in_place if places[1] not in again)


def pair(rows: Kernel, columns: Kernel, which: Sequence[int]) -> Pair:
    """Both in one; `which` says, by operand of `columns`, which operand of `rows` it is, or counts on behind them.

    Raises ValueError where the two do not walk the same domain, or a sum takes what is the same for all columns.
    """
    kept = len(rows.domain) - columns.reduced
    if rows.domain != columns.domain or rows.reduced != kept or rows.target != columns.target:
        raise ValueError("expected a rowwise and a colwise kernel that divide the dimensions of one domain")
    operands = list(rows.operands)
    for number, place in enumerate(which):
        if place == len(operands):
            operands.append(columns.operands[number])
        elif operands[place] != columns.operands[number]:
            raise ValueError(f"operand {number} of the columns is not operand {place} of the rows")
    types = [
        *rows.body.args,
        *(columns.body.args[which.index(n)] for n in range(len(rows.operands), len(operands))),
    ]
    builder = Builder(types)
    results = builder.inline(rows.body, range(len(rows.operands)))
    taken = [reduction(columns, value).argument for value in sums.reductions(columns)]
    values = dict(enumerate(which))
    for value in closure(columns, taken):
        if value >= len(columns.operands):
            line = columns.body.lines[value - len(columns.operands)]
            values[value] = builder.line(line.op, [values[arg] for arg in line.args], line.type, line.attr)
    body = builder.finish([*results, *(values[value] for value in taken)])
    fed = body.results[len(results) :]
    body = Body(body.args, body.lines, body.results[: len(results)])
    whole = replace(rows, body=body, operands=tuple(operands))
    if not all(whole.wide[value] for value in fed):
        raise ValueError("a sum over the rows takes what is the same for all columns")
    return Pair(whole, columns, tuple(which), fed)


@dataclass(frozen=True)
class PairSchedule:
    """How rows are spread over threads that stay."""

    rows: RowSchedule
    """With at least one column and chunk: elements stay in registers from one pass to the next."""
    groups: int
    """Rows that a block has at the same time."""
    blocks: int
    ahead: bool
    """Whether the next row is read while this one is computed."""
    keep: bool
    """Whether operands that are the same for all rows stay in registers."""

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.rows.lanes * self.groups


def code(both: Pair, plan: PairSchedule) -> Code:
    """The text and its launches; the operands, the results of the rows, those of the columns."""
    text, kernel, columns = Text(), both.rows, both.columns
    others = columns.results if columns else ()
    name = f"{kernel.id}_{columns.id.rpartition('_')[2]}" if columns else kernel.id
    unused = [f"void* other{n}" for n in range(len(others))]
    with text.block(head([*parameters(kernel), *unused], f"{name}_rows", plan.threads, plan.rows.resident)):
        PairWriter(both, plan, text).write()
    phases = [Phase(f"{name}_rows", plan.blocks, threads=plan.threads)]
    if columns is None:
        return Code(str(text), tuple(phases))
    breadth, threads = prod(kernel.reduced_shape), WARP * sums.strands(columns)
    with text.block(head(_column_parameters(both, columns), f"{name}_columns", threads)):
        sums.add_parts(text, columns, replace(sums.schedule(columns), parts=plan.blocks))
    phases.append(Phase(f"{name}_columns", -(-breadth // WARP), threads=threads))
    return Code(str(text), tuple(phases), sums.places(columns, plan.blocks * breadth)[1])


def _column_parameters(both: Pair, columns: Kernel) -> list[str]:
    """The addresses of the launch, by the names that `columns` has for them."""
    found = [
        f"const {STORED[tensor.element]}* "
        + (f"a{both.which.index(number)}" if number in both.which else f"other_a{number}")
        for number, tensor in enumerate(both.rows.operands)
    ]
    found += [f"void* other_r{number}" for number in range(len(both.rows.results))]
    return [*found, *(f"{STORED[t.element]}* __restrict__ r{n}" for n, t in enumerate(columns.results))]


class PairWriter(RowWriter):
    """Prints the first phase: rows in turns, and the sums of their columns."""

    def __init__(self, both: Pair, plan: PairSchedule, text: Text):
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
        """The statements of the function."""
        text, plan = self.text, self.turns
        skip(text)
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
                self._read_ahead("begin", counter)
        with text.block(f"for ({counter} start = begin; start < {count}u; start += {step}u)"):
            self.first_row = "start + group"
            self.bases = list(self.start)
            self._one_row()
            if lanes > WARP:
                text.add("turn ^= 1u;")
        self._hand_on()

    def _sums(self) -> list[tuple[int, ReductionText]]:
        """By reduction of the columns, its number and what it is made by."""
        columns = self.both.columns
        return [(value, reduction(columns, value)) for value in sums.reductions(columns)] if columns else []

    def _narrow(self, operand: int) -> str:
        return f"widen(m{operand})" if operand in self.by_row else super()._narrow(operand)

    def _read_early(self) -> None:
        """What was read ahead, and the next row's."""
        text, plan = self.text, self.turns
        if not plan.ahead:
            return super()._read_early()
        with text.each("k", self.plan.chunks):
            for number in self.early:
                text.add(f"x{number}[k] = n{number}[k];")
        counter = "unsigned" if self.plan.count < 1 << 30 else "unsigned long long"
        step = plan.blocks * plan.groups
        with text.block(f"if (start + {step}u < {self.plan.count}u)"):
            self._read_ahead(f"start + {step}u", counter)
        return None

    def _row(self) -> Place:
        row = super()._row()
        for number in self.by_row:
            self.text.add(f"const {self._stored(number)} m{number} = n{number};")
        return row

    def _read_ahead(self, first: str, counter: str) -> None:
        """The row of this group among those that begin with `first`."""
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
                fetch(text, self.kernel, place, number, plan.width, f"n{number}[k]", f"b{number}", plan.once)

    def _feed(self, values: tuple[int, ...], scope: Scope) -> None:
        for (number, of), value in zip(self._sums(), self.both.fed, strict=True):
            if value in values:
                added = f"{of.combine}{{}}(t{number}[k][j], {scope[value]})"
                self.text.add(
                    f"t{number}[k][j] = {f'live ? {added} : t{number}[k][j]' if self.live else added};"
                )

    def _combine(self, reductions: tuple[int, ...]) -> None:
        """Over the lanes of the row, then over its warps; the places of two turns, so that one barrier is enough."""
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
        """The sums of this block to the workspace, those of its groups added from first to last."""
        text, plan, breadth = self.text, self.turns, self.breadth
        if not (found := self._sums()) or not self.both.columns:
            return
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
