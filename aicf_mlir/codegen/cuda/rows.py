"""A rowwise kernel: some lanes, a warp or a block have a row, in registers if it fits, else in shared memory if that has room.

Each thread adds its elements from first to last, then lanes add in a butterfly, then warps from first to last: one
order, which follows from the shapes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from math import prod

from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    find,
    index_of,
    integer,
    pointer,
    put,
    reach,
    signature,
)
from aicf_mlir.codegen.cuda.passes import Passes, Walk, plan_passes
from aicf_mlir.codegen.cuda.row_schedules import WARP, RowSchedule, early
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES, stored
from aicf_mlir.codegen.cuda.text import Scope, Text, line_of, reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.kernels.kernel import Code, Kernel, Phase


def code(kernel: Kernel, plan: RowSchedule) -> Code:
    """The text of a rowwise kernel and its one launch."""
    text = Text()
    with text.block(signature(kernel, kernel.symbol, plan.threads)):
        RowWriter(kernel, plan, text).write()
    blocks = -(-plan.count // plan.rows_per_block)
    return Code(str(text), (Phase(kernel.symbol, blocks, threads=plan.threads, shared=plan.shared),))


class RowWriter:
    """Prints the text of one rowwise kernel."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text, fed: Sequence[int] = ()):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.held = plan.chunks > 0
        self.passes: Passes = plan_passes(kernel, self.held, fed)
        self.fixed: set[int] = set()
        self.early = [n for n in early(kernel, plan) if any(n in p.computed for p in self.passes.passes)]
        if not self.held:
            self.early = []
        self.bases: list[str] = [
            pointer(kernel, n) for n in range(len(kernel.operands) + len(kernel.results))
        ]
        self.span = ("lane", f"{plan.vectors}u")
        self.first_row = ""
        self.writer = "lane == 0"
        """The condition of the thread that writes what a row has once."""
        self.strips: set[int] = set()
        """Those that a walk has filled."""
        self.live = plan.lanes < WARP and plan.count % plan.rows_per_block != 0

    def write(self) -> None:
        """Write the statements of the function."""
        text = self.text
        begin(text)
        if self.plan.strips:
            text.add("extern __shared__ __align__(16) unsigned char shared[];")
        for number, start in self.plan.strips:
            vector = f"Vec<{self._stored(number)}, {self._neighbours(number)}>"
            text.add(f"{vector}* const strip{number} = reinterpret_cast<{vector}*>(shared + {start});")
        self._one_row()

    def _one_row(self) -> None:
        """Emit everything for the row of these lanes."""
        text, kernel = self.text, self.kernel
        self.row = self._row()
        self.scope = Scope(text, kernel, self._narrow, lambda dim: index_of(dim, "", self.row))
        if (
            prod(kernel.reduced_shape) == 1
        ):  # a result may take an operand's place before its last use: read all
            self.scope.need(n for n, type_ in enumerate(kernel.body.args) if not is_table(type_))
        self._arrays()
        self._read_early()
        for number, item in enumerate(self.passes.passes):
            self._row_results(number)
            self._pass(number, item)

    def _narrow(self, operand: int) -> str:
        """The element of an operand that is the same along the row."""
        return f"widen({self.bases[operand]}[0])"

    def _read_early(self) -> None:
        """Read the operands that differ from row to row, before anything is computed."""
        if self.early and self.plan.vectors:
            with self._chunks() as place:
                for number in self.early:
                    self._fetch(place, number, f"x{number}[k]")

    def _row(self) -> Coordinates:
        """The row of these lanes, and the address of each tensor in it."""
        text, plan = self.text, self.plan
        counter = "unsigned" if plan.count < 1 << 31 else "unsigned long long"
        lane, own = f"threadIdx.x % {plan.lanes}u", f"threadIdx.x / {plan.lanes}u"
        text.add(f"const unsigned lane = {lane};")
        first = f"static_cast<{counter}>(blockIdx.x) * {plan.rows_per_block}u + {own}"
        first = self.first_row or first
        if self.live:  # lanes of other rows exchange values with these: they compute the last row once more
            text.add(f"const {counter} mine = {first};", f"const bool live = mine < {plan.count}u;")
            text.add(f"const {counter} row = live ? mine : {plan.count - 1}u;")
        else:
            text.add(f"const {counter} row = {first};")
            if plan.count % plan.rows_per_block:
                text.add(f"if (row >= {plan.count}u) return;")
        row = find(text, plan.rows, "row", "o", integer(max(reach(plan.rows), plan.count)))
        for tensor, base in enumerate(self.bases):
            if (at := row.offset(tensor)) != "0":
                text.add(f"const auto p{tensor} = {base} + ({at});")
                self.bases[tensor] = f"p{tensor}"
        return row

    def _fetch(self, place: Coordinates, operand: int, target: str) -> None:
        alone = (self.plan.read_once and operand in self.early) or operand in dict(self.plan.strips)
        how = "once" if alone else ""
        fetch(self.text, self.kernel, place, operand, self.plan.width, target, self.bases[operand], how)

    def _arrays(self) -> None:
        """Declare registers of elements that stay from one pass to another."""
        text, plan, count = self.text, self.plan, max(self.plan.chunks, 1)
        for value in sorted({*self.early, *self.passes.held} - self.fixed):
            if value < len(self.kernel.operands):
                text.add(f"Vec<{self._stored(value)}, {self._neighbours(value)}> x{value}[{count}];")
            else:
                text.add(f"{TYPES[self.kernel.body.type(value)]} h{value}[{count}][{plan.width}];")

    def _stored(self, operand: int) -> str:
        return STORED[self.kernel.operands[operand].element]

    def _neighbours(self, operand: int) -> int:
        columns = self.plan.columns
        return self.plan.width if columns and columns[-1].strides[operand] else 1

    @contextmanager
    def _chunks(self) -> Generator[Coordinates]:
        """A loop over the vectors of this thread: number k, at the place that is given."""
        text, plan = self.text, self.plan
        kind = integer(max(reach(plan.columns), plan.vectors * plan.width))
        if not self.held:
            text.add(f"#pragma unroll {plan.ahead}")
            start, end = self.span
            with text.block(f"for (unsigned c = {start}; c < {end}; c += {plan.lanes}u)"):
                yield find(text, plan.columns, "c", "e", kind, plan.width)
            return
        with text.each("k", plan.chunks):
            text.add(f"const unsigned c = k * {plan.lanes}u + lane;")
            with text.block("" if plan.vectors % plan.lanes == 0 else f"if (c < {plan.vectors}u)"):
                yield find(text, plan.columns, "c", "e", kind, plan.width)

    def _pass(self, number: int, item: Walk) -> None:
        """Emit one walk over the row, and the reductions that it feeds."""
        text, kernel, made = self.text, self.kernel, self.passes.made
        keep = [v for v in item.computed if v >= len(kernel.operands) and made.get(v) == number]
        if not (item.reductions or item.written or item.fed or keep):
            return
        self.scope.need(item.narrow)
        for value in item.reductions:
            of = reduction(kernel, value)
            text.add(f"{of.type} s{value} = {of.identity};")
        read = [] if self.held else [n for n in self._fetched(item) if n not in self.strips]
        if read and self._comparisons(item):  # which are branches: nothing behind one is read before it
            with self._batches(read) as place:
                self._elements(number, item, keep, place, read)
        elif self.plan.vectors:
            with self._chunks() as place:
                self._elements(number, item, keep, place)
        self._combine(item.reductions)

    def _fetched(self, item: Walk) -> list[int]:
        """The operands of elements that a pass takes from memory, or from where a pass before it has left them."""
        count, kept = len(self.kernel.operands), {*self.early, *self.fixed}
        return [operand for operand in item.computed if operand < count and operand not in kept]

    @contextmanager
    def _batches(self, read: Sequence[int]) -> Generator[Coordinates]:
        """A loop over the vectors of this thread in a walk, where so many as are read ahead are read before the first is used."""
        text, plan = self.text, self.plan
        kind = integer(max(reach(plan.columns), plan.vectors * plan.width))
        start, end = self.span
        with text.block(f"for (unsigned c0 = {start}; c0 < {end}; c0 += {plan.lanes * plan.ahead}u)"):
            for operand in read:
                text.add(
                    f"Vec<{self._stored(operand)}, {self._neighbours(operand)}> n{operand}[{plan.ahead}];"
                )
            with text.each("u", plan.ahead):
                text.add(f"const unsigned c = c0 + u * {plan.lanes}u;")
                with text.block(f"if (c < {end})"):
                    place = find(text, plan.columns, "c", "e", kind, plan.width)
                    for operand in read:
                        self._fetch(place, operand, f"n{operand}[u]")
            with text.each("u", plan.ahead):
                text.add(f"const unsigned c = c0 + u * {plan.lanes}u;")
                with text.block(f"if (c < {end})"):
                    yield find(text, plan.columns, "c", "e", kind, plan.width)

    def _elements(
        self, number: int, item: Walk, keep: list[int], place: Coordinates, ahead: Sequence[int] = ()
    ) -> None:
        """Write the arithmetic of a pass on one vector; those of the operands `ahead` are there."""
        text, kernel, plan = self.text, self.kernel, self.plan
        kept = {*self.early, *self.passes.held, *self.fixed}
        for operand in self._fetched(item):
            target = f"x{operand}" + ("[k]" if operand in kept else "")
            if operand not in kept:
                text.add(f"Vec<{self._stored(operand)}, {self._neighbours(operand)}> {target};")
            if operand in self.strips:
                text.add(f"{target} = strip{operand}[c];")
                continue
            if operand in ahead:
                text.add(f"{target} = n{operand}[u];")
            else:
                self._fetch(place, operand, target)
            if operand in dict(self.plan.strips):  # no other thread reads it
                text.add(f"strip{operand}[c] = {target};")
                self.strips.add(operand)
        for result in item.written:
            text.add(f"Vec<{STORED[kernel.results[result].element]}, {plan.width}> y{result};")
        names = {
            value: f"h{value}[k][j]"
            for value, first in self.passes.made.items()
            if first < number and value >= len(kernel.operands)
        }
        if compared := self._comparisons(item):
            first = place.names[-1]
            numbers = [
                f"static_cast<unsigned long long>({self.scope[n]})" for n in dict.fromkeys(compared.values())
            ]
            with text.block(f"if ({' || '.join(f'{n} - {first} < {plan.width}u' for n in numbers)})"):
                self._points(item, keep, place, names)
            with text.block("else"):
                self._points(item, keep, place, names | dict.fromkeys(compared, "false"))
        else:
            self._points(item, keep, place, names)
        if item.written:
            with text.block("if (live)" if self.live else ""):
                for result in item.written:
                    base = self.bases[len(kernel.operands) + result]
                    put(text, kernel, place, result, plan.width, base)

    def _points(self, item: Walk, keep: list[int], place: Coordinates, names: dict[int, str]) -> None:
        """Write the arithmetic of a pass on each element of a vector; `names` has values that are known."""
        text, kernel, plan = self.text, self.kernel, self.plan
        kept = {*self.early, *self.passes.held, *self.fixed}
        with text.each("j", plan.width):

            def element(operand: int) -> str:
                place_in = "j" if self._neighbours(operand) > 1 else "0"
                return f"element_of(x{operand}{'[k]' if operand in kept else ''}, {place_in})"

            scope = Scope(text, kernel, element, lambda dim: index_of(dim, "j", self.row, place), self.scope)
            scope.names.update(names)
            for value in keep:
                text.add(f"h{value}[k][j] = {scope[value]};")
            for value in item.reductions:
                of = reduction(kernel, value)
                if not (of.combine == "Sum" and scope.is_zero(of.argument)):
                    text.add(f"s{value} = {scope.added(f's{value}', of.argument, of.combine)};")
            self._feed(item.fed, scope)
            for result in item.written:
                value = scope[kernel.body.results[result]]
                text.add(f"y{result}.at[j] = {stored(kernel.results[result].element, value)};")

    def _comparisons(self, item: Walk) -> dict[int, int]:
        """Comparisons that hold for one element of a row at most: by value, the number of the row that the index is compared
        with.

        Most vectors have no such element, and are written without the comparison.
        """
        if self.plan.width == 1 or not self.plan.columns:
            return {}
        found: dict[int, int] = {}
        for value in item.computed:
            line = line_of(self.kernel, value)
            if line is None or (line.op, line.attr) != ("arith.cmpi", "eq"):
                continue
            for index, other in (line.args, line.args[::-1]):
                made = line_of(self.kernel, index)
                if made is None or made.op != "scalar.index" or other not in item.narrow:
                    continue
                if self.plan.columns[-1].dims == (made.attr,):
                    found[value] = other
        return found

    def _feed(self, values: tuple[int, ...], scope: Scope) -> None:
        """Feed these values of one element to the sums over the rows; a row alone has none."""

    def _combine(self, reductions: tuple[int, ...]) -> None:
        """Combine over the lanes of the row, then over its warps; every thread gets the result."""
        text, kernel, lanes = self.text, self.kernel, self.plan.lanes
        for value in reductions:
            of = reduction(kernel, value)
            inside = f"over_lanes<{of.combine}, {min(lanes, WARP)}>(s{value})" if lanes > 1 else f"s{value}"
            if lanes <= WARP:
                text.add(f"const {of.type} v{value} = {inside};")
                self.scope.names[value] = f"v{value}"
            else:
                text.add(f"s{value} = {inside};", f"__shared__ {of.type} w{value}[{lanes // WARP}];")
                text.add(f"if (lane % {WARP}u == 0) w{value}[lane / {WARP}u] = s{value};")
        if lanes <= WARP or not reductions:
            return
        text.add("__syncthreads();")
        for value in reductions:
            of = reduction(kernel, value)
            text.add(f"const {of.type} v{value} = in_order<{of.combine}, {lanes // WARP}>(w{value});")
            self.scope.names[value] = f"v{value}"

    def _row_results(self, stage: int) -> None:
        """Write the results without the reduced dimensions, one element a row, that follow this number of reductions."""
        kernel, text = self.kernel, self.text
        stages = [kernel.body.stages[value] for value in kernel.body.results]
        numbers = [n for n in range(len(kernel.results)) if not kernel.is_whole(n) and stages[n] == stage]
        if not numbers:
            return
        self.scope.need(kernel.body.results[n] for n in numbers)
        with text.block(f"if ({self.writer}{' && live' if self.live else ''})"):
            for n in numbers:
                value = self.scope[kernel.body.results[n]]
                base = self.bases[len(kernel.operands) + n]
                text.add(f"{base}[0] = {stored(kernel.results[n].element, value)};")
