"""A rowwise kernel whose rows lie side by side: a thread has neighbouring rows, and walks down their elements.

So a thread reads and writes up to 16 bytes at a time, and a warp whole lines. Threads that share rows are in different warps.
Each adds every `lanes`-th element of a row from first to last, and then their sums are added from first to last.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

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
from aicf_mlir.codegen.cuda.passes import Walk, plan_passes
from aicf_mlir.codegen.cuda.row_schedules import RowSchedule, early
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES, stored
from aicf_mlir.codegen.cuda.text import Scope, Text, line_of, reduction
from aicf_mlir.ir.body import is_table
from aicf_mlir.kernels.kernel import Code, Kernel, Phase


def code(kernel: Kernel, plan: RowSchedule) -> Code:
    """The text of a rowwise kernel and its one launch."""
    text = Text()
    with text.block(signature(kernel, kernel.symbol, plan.threads)):
        BesideWriter(kernel, plan, text).write()
    blocks = -(-plan.count // plan.rows_per_block)
    return Code(str(text), (Phase(kernel.symbol, blocks, threads=plan.threads),))


class BesideWriter:
    """Prints the text of one kernel. In it, j is one of the neighbouring rows of a thread."""

    row: Coordinates
    """Of the first of these rows."""

    def __init__(self, kernel: Kernel, plan: RowSchedule, text: Text):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.held = plan.chunks > 0
        self.passes = plan_passes(kernel, self.held)
        read = early(kernel, plan) if self.held else []
        self.early = [n for n in read if any(n in walk.computed for walk in self.passes.passes)]
        self.bases = [pointer(kernel, n) for n in range(len(kernel.operands) + len(kernel.results))]
        self.live = plan.lanes > 1 and plan.count % plan.rows_per_block != 0
        self.known: dict[int, str] = {}
        """Values that are the same along row j, by their names."""

    def write(self) -> None:
        """Write the statements of the function."""
        begin(self.text)
        self._rows()
        self._fixed()
        self._arrays()
        if self.early and self.plan.vectors:
            with self._held() as place:
                for number in self.early:
                    self._fetch(place, number, f"x{number}[k]")
        for number, item in enumerate(self.passes.passes):
            self._row_results(number)
            self._pass(number, item)

    def _rows(self) -> None:
        """The rows of this thread, and the address of each tensor in the first of them."""
        text, plan = self.text, self.plan
        count = plan.count // plan.width
        counter = "unsigned" if count < 1 << 31 else "unsigned long long"
        own = f"threadIdx.x % {plan.side}u" if plan.lanes > 1 else "threadIdx.x"
        text.add(f"const unsigned lane = {f'threadIdx.x / {plan.side}u' if plan.lanes > 1 else '0u'};")
        first = f"static_cast<{counter}>(blockIdx.x) * {plan.side}u + {own}"
        if self.live:  # those without rows exchange sums with others: they compute the last rows once more
            text.add(f"const {counter} mine = {first};", f"const bool live = mine < {count}u;")
            text.add(f"const {counter} vector = live ? mine : {count - 1}u;")
        else:
            text.add(f"const {counter} vector = {first};")
            if count % plan.side:
                text.add(f"if (vector >= {count}u) return;")
        kind = integer(max(reach(plan.rows), plan.count))
        self.row = find(text, plan.rows, "vector", "o", kind, plan.width)
        for tensor, base in enumerate(self.bases):
            if (at := self.row.offset(tensor)) != "0":
                text.add(f"const auto p{tensor} = {base} + ({at});")
                self.bases[tensor] = f"p{tensor}"

    def _neighbours(self, operand: int) -> int:
        return self.plan.width if self.plan.rows[-1].strides[operand] else 1

    def _vector(self, operand: int) -> str:
        return f"Vec<{STORED[self.kernel.operands[operand].element]}, {self._neighbours(operand)}>"

    def _element(self, operand: int, where: str = "") -> str:
        return f"element_of(x{operand}{where}, {'j' if self._neighbours(operand) > 1 else '0'})"

    def _fetch(self, place: Coordinates, operand: int, target: str) -> None:
        base, along = self.bases[operand], self.plan.rows[-1]
        fetch(self.text, self.kernel, place, operand, self.plan.width, target, base, along=along)

    def _put(self, place: Coordinates, result: int) -> None:
        base, along = self.bases[len(self.kernel.operands) + result], self.plan.rows[-1]
        put(self.text, self.kernel, place, result, self.plan.width, base, along=along)

    def _results(self, results: Sequence[int]) -> None:
        for result in results:
            stored_as = STORED[self.kernel.results[result].element]
            self.text.add(f"Vec<{stored_as}, {self.plan.width}> y{result};")

    def _fixed(self) -> None:
        """Read the operands that are the same along a row, all of them: a result may take their place."""
        args, wide = self.kernel.body.args, self.kernel.wide
        for number in (n for n, type_ in enumerate(args) if not wide[n] and not is_table(type_)):
            self.text.add(f"{self._vector(number)} x{number};")
            self._fetch(Coordinates((), ()), number, f"x{number}")

    def _arrays(self) -> None:
        """Declare registers of elements that stay from one pass to another."""
        for value in sorted({*self.early, *self.passes.held}):
            if value < len(self.kernel.operands):
                self.text.add(f"{self._vector(value)} x{value}[{self.plan.chunks}];")
            else:
                type_ = TYPES[self.kernel.body.type(value)]
                self.text.add(f"{type_} h{value}[{self.plan.chunks}][{self.plan.width}];")

    def _place(self) -> Coordinates:
        """Element c of the rows."""
        columns = self.plan.columns
        return find(self.text, columns, "c", "e", integer(max(reach(columns), self.plan.vectors)))

    @contextmanager
    def _held(self) -> Generator[Coordinates]:
        """A loop over the elements of this thread in registers: number k, at the place that is given."""
        text, plan = self.text, self.plan
        with text.each("k", plan.chunks):
            text.add(f"const unsigned c = k * {plan.lanes}u + lane;")
            with text.block("" if plan.vectors % plan.lanes == 0 else f"if (c < {plan.vectors}u)"):
                yield self._place()

    def _narrow(self) -> Scope:
        """A scope for what is the same along row j."""
        scope = Scope(self.text, self.kernel, self._element, lambda dim: index_of(dim, "j", self.row))
        scope.names.update(self.known)
        return scope

    def _keep(self, values: Sequence[int]) -> None:
        """Compute values that are the same along a row, for all rows of this thread, unless they are there."""
        text, kernel = self.text, self.kernel
        lines = {v: line for v in values if v not in self.known and (line := line_of(kernel, v)) is not None}
        new = [v for v, line in lines.items() if line.op != "arith.constant"]
        for value in new:
            text.add(f"{TYPES[kernel.body.type(value)]} h{value}[{self.plan.width}];")
        if new:
            with text.each("j", self.plan.width):
                scope = self._narrow()
                for value in new:
                    text.add(f"h{value}[j] = {scope[value]};")
        self.known |= {value: f"h{value}[j]" for value in new}

    def _pass(self, number: int, item: Walk) -> None:
        """Write one walk over the rows, and the reductions that it feeds."""
        text, plan, made = self.text, self.plan, self.passes.made
        keep = [v for v in item.computed if v >= len(self.kernel.operands) and made.get(v) == number]
        if not (item.reductions or item.written or keep):
            return
        self._keep(item.narrow)
        for value in item.reductions:
            of = reduction(self.kernel, value)
            text.add(f"{of.type} s{value}[{plan.width}];")
            with text.each("j", plan.width):
                text.add(f"s{value}[j] = {of.identity};")
        if plan.vectors and self.held:
            with self._held() as place:
                self._elements(number, item, keep, place)
        elif plan.vectors:
            self._walk(number, item, keep)
        self._combine(item.reductions)

    def _walk(self, number: int, item: Walk, keep: Sequence[int]) -> None:
        """A loop over the elements of this thread, where so many as are read ahead are read before the first is used."""
        text, plan = self.text, self.plan
        read = [n for n in item.computed if n < len(self.kernel.operands)]
        head = f"for (unsigned c0 = lane; c0 < {plan.vectors}u; c0 += {plan.lanes * plan.ahead}u)"
        with text.block(head):
            for operand in read:
                text.add(f"{self._vector(operand)} x{operand}[{plan.ahead}];")
            for is_read in (True, False):
                with text.each("k", plan.ahead):
                    text.add(f"const unsigned c = c0 + k * {plan.lanes}u;")
                    whole = plan.vectors % (plan.lanes * plan.ahead) == 0
                    with text.block("" if whole else f"if (c < {plan.vectors}u)"):
                        place = self._place()
                        if is_read:
                            for operand in read:
                                self._fetch(place, operand, f"x{operand}[k]")
                        else:
                            self._elements(number, item, keep, place, read)

    def _elements(
        self, number: int, item: Walk, keep: Sequence[int], place: Coordinates, ahead: Sequence[int] = ()
    ) -> None:
        """Write the arithmetic of a pass on one element of each row; those of the operands `ahead` are there."""
        text, kernel, plan = self.text, self.kernel, self.plan
        count = len(kernel.operands)
        kept = {*self.early, *self.passes.held, *ahead}
        for operand in item.computed:
            if operand >= count or operand in self.early or operand in ahead:
                continue
            if operand not in kept:
                text.add(f"{self._vector(operand)} x{operand};")
            self._fetch(place, operand, f"x{operand}{'[k]' if operand in kept else ''}")
        self._results(item.written)
        with text.each("j", plan.width):

            def element(operand: int) -> str:
                return self._element(operand, "[k]" if operand in kept else "")

            scope = Scope(text, kernel, element, lambda dim: index_of(dim, "j", place, self.row))
            scope.names.update(self.known)
            for value, first in self.passes.made.items():
                if first < number and value >= count:
                    scope.names[value] = f"h{value}[k][j]"
            for value in keep:
                text.add(f"h{value}[k][j] = {scope[value]};")
            for value in item.reductions:
                of = reduction(kernel, value)
                text.add(f"s{value}[j] = {scope.added(f's{value}[j]', of.argument, of.combine)};")
            for result in item.written:
                value = scope[kernel.body.results[result]]
                text.add(f"y{result}.at[j] = {stored(kernel.results[result].element, value)};")
        if item.written:
            with text.block("if (live)" if self.live else ""):
                for result in item.written:
                    self._put(place, result)

    def _combine(self, reductions: Sequence[int]) -> None:
        """Combine over the threads that share rows, from first to last; each of them gets the results."""
        text, plan = self.text, self.plan
        if plan.lanes == 1 or not reductions:
            self.known |= {value: f"s{value}[j]" for value in reductions}
            return
        found = {value: reduction(self.kernel, value) for value in reductions}
        rows, own = plan.rows_per_block, f"threadIdx.x % {plan.side}u"
        for value, of in found.items():
            text.add(f"__shared__ {of.type} w{value}[{plan.lanes}][{rows}];")
            with text.each("j", plan.width):  # neighbouring threads are in neighbouring banks
                text.add(f"w{value}[lane][j * {plan.side}u + {own}] = s{value}[j];")
        text.add("__syncthreads();")
        with text.block(f"for (unsigned mine = threadIdx.x; mine < {rows}u; mine += {plan.threads}u)"):
            for value, of in found.items():
                text.add(f"{of.type} v{value} = w{value}[0][mine];")
                with text.each("other", plan.lanes):
                    text.add(f"if (other > 0) v{value} = {of.combine}{{}}(v{value}, w{value}[other][mine]);")
                text.add(f"w{value}[0][mine] = v{value};")
        text.add("__syncthreads();")
        for value in found:
            with text.each("j", plan.width):
                text.add(f"s{value}[j] = w{value}[0][j * {plan.side}u + {own}];")
        self.known |= {value: f"s{value}[j]" for value in reductions}

    def _row_results(self, stage: int) -> None:
        """Write the results without the reduced dimensions that follow this number of reductions."""
        kernel, text = self.kernel, self.text
        stages = [kernel.body.stages[value] for value in kernel.body.results]
        numbers = [n for n in range(len(kernel.results)) if not kernel.is_whole(n) and stages[n] == stage]
        if not numbers:
            return
        conditions = ["lane == 0"] * (self.plan.lanes > 1) + ["live"] * self.live
        with text.block(f"if ({' && '.join(conditions)})" if conditions else ""):
            self._results(numbers)
            with text.each("j", self.plan.width):
                scope = self._narrow()
                for n in numbers:
                    value = stored(kernel.results[n].element, scope[kernel.body.results[n]])
                    text.add(f"y{n}.at[j] = {value};")
            for n in numbers:
                self._put(Coordinates((), ()), n)
