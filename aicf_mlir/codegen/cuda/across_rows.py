"""A rowwise kernel whose rows lie across: threads have neighbouring rows, as in a colwise kernel, and blocks share each row.

Each block walks over its part of the rows, hands on what it has summed, and adds what all blocks of these rows have handed on.
A device that holds all blocks at once runs one function, in which they wait for each other and keep in shared memory what they
read again. Any other device runs a launch for each walk. Both have the same order of sums, and so the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    find,
    head,
    index_of,
    integer,
    parameters,
    pointer,
    put,
    reach,
)
from aicf_mlir.codegen.cuda.across_schedules import (
    THREADS,
    AcrossSchedule,
    exchanged,
    read_again,
    streams,
    vector_bytes,
)
from aicf_mlir.codegen.cuda.across_sums import AcrossSums, sums_of
from aicf_mlir.codegen.cuda.moments import Round, rounds_of
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES, stored
from aicf_mlir.codegen.cuda.text import Scope, Text, closure, reduction
from aicf_mlir.kernels.kernel import Code, Kernel, Phase


def workspace(kernel: Kernel, plan: AcrossSchedule) -> int:
    """Bytes of partial results."""
    return sums_of(kernel, plan)[1] if plan.parts > 1 else 0


def code(kernel: Kernel, plan: AcrossSchedule) -> Code:
    """The text, its launches, and the one launch that may take their place."""
    text, blocks, last = Text(), plan.tiles * plan.parts, len(rounds_of(kernel)) - 1
    strips = THREADS * plan.kept * sum(vector_bytes(kernel, plan, n) for n in read_again(kernel))
    if plan.parts == 1 or last == 0:
        with text.block(head(parameters(kernel), kernel.symbol, THREADS)):
            AcrossWriter(kernel, plan, text, plan.kept).write(0, last)
        return Code(str(text), (Phase(kernel.symbol, blocks, threads=THREADS, shared=strips),))
    phases: list[Phase] = []
    for number in range(last + 1):
        name = f"{kernel.symbol}_walk{number}"
        with text.block(head(parameters(kernel), name, THREADS)):
            AcrossWriter(kernel, plan, text, 0).write(number, number)
        phases.append(Phase(name, blocks, threads=THREADS))
    together = f"{kernel.symbol}_together"
    with text.block(head(parameters(kernel), together, THREADS, gates=True)):
        AcrossWriter(kernel, plan, text, plan.kept).write(0, last)
    return Code(
        str(text),
        tuple(phases),
        workspace(kernel, plan),
        together=Phase(together, blocks, threads=THREADS, shared=strips),
    )


class AcrossWriter(AcrossSums):
    """Prints one function: some of the walks, one after the other."""

    def __init__(self, kernel: Kernel, plan: AcrossSchedule, text: Text, kept: int):
        super().__init__(kernel, plan, text)
        self.strips = read_again(kernel) if kept else []
        self.kept = kept
        self.filled: set[int] = set()
        """Tensors of which a walk has left elements in shared memory."""
        self.inside = "inside" if plan.vectors % plan.across else ""

    def write(self, first: int, last: int) -> None:
        """Write the statements of a function that makes the walks from `first` to `last`."""
        self._begin()
        for number in range(last + 1):
            item = self.rounds[number]
            if number:
                self._totals(number - 1)
            if number < first:
                continue
            if item.reductions or item.moments or item.written:
                self._keep(item.narrow)
                self._walk(number, item)
            if number < len(self.rounds) - 1:
                self._hand_on(number, item)
                if self.plan.parts > 1 and number < last:
                    self.text.add(f"meet_blocks(gates + 2u * tile, {self.plan.parts}u);")
        if last == len(self.rounds) - 1:
            self._row_results()

    def _begin(self) -> None:
        text, plan, kernel = self.text, self.plan, self.kernel
        begin(text)
        size = exchanged(kernel, plan)
        text.add(f"__shared__ uint4 exchanged[{-(-size // 16)}];")
        if self.strips:
            text.add("extern __shared__ __align__(16) unsigned char shared[];")
        start, tiles = 0, max(plan.tiles, 1)
        for number in self.strips:
            vector = self._vector(number)
            text.add(f"{vector}* const strip{number} = reinterpret_cast<{vector}*>(shared + {start});")
            start += THREADS * self.kept * vector_bytes(kernel, plan, number)
        text.add(
            f"const unsigned across = threadIdx.x % {plan.across}u, down = threadIdx.x / {plan.across}u;",
            f"const unsigned tile = blockIdx.x % {tiles}u, part = blockIdx.x / {tiles}u;",
            f"const unsigned vector = tile * {plan.across}u + across;",
        )
        if self.inside:
            text.add(f"const bool inside = vector < {plan.vectors}u;")
        counter = "unsigned" if plan.height < 1 << 30 else "unsigned long long"
        text.add(
            f"const {counter} begin = static_cast<{counter}>(part) * {plan.each}u;",
            f"const {counter} end = begin + {plan.each}u < {plan.height}u ? begin + {plan.each}u : {plan.height}u;",
        )
        self.counter = counter
        kind = integer(max(reach(plan.columns), plan.breadth))
        self.row = find(text, plan.columns, "vector", "o", kind, plan.width)
        fixed = sorted(
            {v for v in closure(kernel, self._needed()) if v < len(kernel.operands) and not kernel.wide[v]}
        )
        for number in fixed:
            text.add(f"{self._vector(number)} x{number};")
        with text.block(f"if ({self.inside})" if self.inside else ""):
            for number in fixed:
                fetch(text, kernel, self.row, number, plan.width, f"x{number}")

    def _needed(self) -> list[int]:
        """Values that are the same along a row, and that some walk or a result of rows needs."""
        found = [v for item in self.rounds for v in item.narrow]
        found += [of.near for of in self.served.values() if of.near >= 0]
        return found + [v for n, v in enumerate(self.kernel.body.results) if not self.kernel.is_whole(n)]

    def _point(self) -> Coordinates:
        plan = self.plan
        kind = integer(max(reach([*plan.columns, *plan.rows]), plan.height))
        at = find(self.text, plan.rows, "element", "e", kind)
        return Coordinates((*at.axes, *self.row.axes), (*at.names, *self.row.names))

    def _walk(self, number: int, item: Round) -> None:
        text, plan = self.text, self.plan
        self._accumulators(number, item)
        read = streams(self.kernel, item)
        rounds = -(-plan.most // plan.batch)
        with text.block(f"if ({self.inside})" if self.inside else ""):
            for value in item.moments:
                self._pivot(value)
            with text.block(f"for (unsigned round = 0; round < {rounds}u; ++round)"):
                # What was read last is still in the cache: the next walk begins with it.
                turn = f"{rounds - 1}u - round" if number % 2 else "round"
                text.add(f"const unsigned own = ({turn}) * {plan.batch}u;")
                for operand in read:
                    text.add(f"{self._vector(operand)} x{operand}[{plan.batch}];")
                for work in (self._read, self._add):
                    with text.each("u", plan.batch):
                        text.add(f"const {self.counter} element = begin + down + (own + u) * {plan.down}u;")
                        with text.block("if (element < end)"):
                            work(item, read)
        written = {len(self.kernel.operands) + number for number in item.written}
        self.filled |= {*read, *written} & {*self.strips}

    def _accumulators(self, number: int, item: Round) -> None:
        for each in self.sums[number]:
            self.text.add(f"{each.type} s{each.name}[{self.plan.width}];")
            with self.text.each("j", self.plan.width):
                self.text.add(f"s{each.name}[j] = {each.identity};")
        for value in item.moments:
            type_ = TYPES[self.kernel.body.type(value)]
            self.text.add(f"{type_} p{value}[{self.plan.width}];")
            with self.text.each("j", self.plan.width):
                self.text.add(f"p{value}[j] = 0;")

    def _pivot(self, value: int) -> None:
        """The first element of this block, if it is finite: what is near the mean, or far from it as much as the deviation is."""
        text, plan, kernel = self.text, self.plan, self.kernel
        read = [v for v in closure(kernel, [value]) if v < len(kernel.operands) and kernel.wide[v]]
        with text.block(""):
            text.add(f"const {self.counter} element = begin;")
            place = self._point()
            for operand in read:
                text.add(f"{self._vector(operand)} x{operand};")
                fetch(text, kernel, place, operand, plan.width, f"x{operand}")
            with text.each("j", plan.width):
                scope = self._scope(place, read, "", ())
                text.add(f"const auto first = {scope[value]};")
                text.add(f"p{value}[j] = first - first == 0 ? first : 0;")

    def _read(self, _: Round, read: Sequence[int]) -> None:
        text, plan = self.text, self.plan
        place = self._point()
        kept = [n for n in read if n in self.filled]
        other = [n for n in read if n not in self.filled]
        if kept:
            with text.block(self._is_kept()):
                for operand in kept:
                    text.add(f"x{operand}[u] = strip{operand}[(own + u) * {THREADS}u + threadIdx.x];")
            if self.kept < plan.most:
                with text.block("else"):
                    for operand in kept:
                        fetch(text, self.kernel, place, operand, plan.width, f"x{operand}[u]")
        for operand in other:
            fetch(text, self.kernel, place, operand, plan.width, f"x{operand}[u]")

    def _is_kept(self) -> str:
        """The condition under which shared memory has a place for an element."""
        return "" if self.kept >= self.plan.most else f"if (own + u < {self.kept}u)"

    def _scope(
        self, place: Coordinates, read: Sequence[int], where: str, again: Sequence[tuple[int, int]]
    ) -> Scope:
        def element(operand: int) -> str:
            return self._element(operand, where if operand in read else "")

        neighbour = "j" if self.plan.columns else ""
        scope = Scope(self.text, self.kernel, element, lambda dim: index_of(dim, neighbour, place))
        scope.names.update(self.known)
        for value, number in again:
            scope.names[value] = self._element(len(self.kernel.operands) + number, where)
        return scope

    def _add(self, item: Round, read: Sequence[int]) -> None:
        """One element of each row: its share of the sums, and the results of the domain's shape."""
        text, kernel, plan = self.text, self.kernel, self.plan
        if fresh := [n for n in read if n in self.strips and n not in self.filled]:
            with text.block(self._is_kept()):
                for operand in fresh:
                    text.add(f"strip{operand}[(own + u) * {THREADS}u + threadIdx.x] = x{operand}[u];")
        place = self._point()
        for number in item.written:
            text.add(f"Vec<{STORED[kernel.results[number].element]}, {plan.width}> y{number};")
        with text.each("j", plan.width):
            scope = self._scope(place, read, "[u]", item.again)
            for value in item.reductions:
                of = reduction(kernel, value)
                text.add(f"s{value}[j] = {scope.added(f's{value}[j]', of.argument, of.combine)};")
            for value in item.moments:
                text.add(f"const auto d{value} = {scope[value]} - p{value}[j];")
                text.add(f"sm{value}[j] += d{value};")
                text.add(f"sq{value}[j] = fma(d{value}, d{value}, sq{value}[j]);")
            for number in item.written:
                value = scope[kernel.body.results[number]]
                text.add(f"y{number}.at[j] = {stored(kernel.results[number].element, value)};")
        for number in item.written:
            put(text, kernel, place, number, plan.width)
            if (tensor := len(kernel.operands) + number) in self.strips:
                with text.block(self._is_kept()):
                    text.add(f"strip{tensor}[(own + u) * {THREADS}u + threadIdx.x] = y{number};")

    def _row_results(self) -> None:
        """Write the results without the reduced dimensions."""
        text, kernel, plan = self.text, self.kernel, self.plan
        numbers = [n for n in range(len(kernel.results)) if not kernel.is_whole(n)]
        if not numbers:
            return
        condition = " && ".join(["part == 0", "down == 0", *([self.inside] if self.inside else [])])
        with text.block(f"if ({condition})"), text.each("j", plan.width):
            scope = self._narrow()
            for number in numbers:
                which = len(kernel.operands) + number
                stride = self.row.axes[-1].strides[which] if self.row.axes else 0
                behind = f" + j * {stride}" if stride else ""
                value = stored(kernel.results[number].element, scope[kernel.body.results[number]])
                text.add(f"{pointer(kernel, which)}[{self.row.offset(which)}{behind}] = {value};")
