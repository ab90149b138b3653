"""The sums of a kernel whose rows lie across: of the threads of a block, then of all blocks that share rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.cuda.access import Coordinates, index_of, size_of, tensors
from aicf_mlir.codegen.cuda.across_schedules import THREADS, WARP, AcrossSchedule, largest, neighbours, passed
from aicf_mlir.codegen.cuda.moments import Round, Served, rounds_of, served
from aicf_mlir.codegen.cuda.scalars import STORED, TYPES
from aicf_mlir.codegen.cuda.text import Scope, Text, line_of, reduction
from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.kernels.kernel import Kernel


@dataclass(frozen=True)
class Sum:
    """What the blocks of a row add up: a reduction, or one of the two sums of a value's moments."""

    name: str
    type: str
    bytes: int
    combine: str
    identity: str
    start: int
    """Of the partial results in the workspace."""


def sums_of(kernel: Kernel, plan: AcrossSchedule) -> tuple[dict[int, list[Sum]], int]:
    """The sums by round, and the bytes of all partial results."""
    used, found = 0, dict[int, list[Sum]]()

    def add(name: str, type_: str, size: int, combine: str, identity: str) -> Sum:
        nonlocal used
        start, used = used, used + -(-plan.parts * plan.breadth * size // ALIGNMENT) * ALIGNMENT
        return Sum(name, type_, size, combine, identity, start)

    for number, item in enumerate(rounds_of(kernel)):
        found[number] = []
        for value in item.reductions:
            of = reduction(kernel, value)
            found[number].append(add(f"{value}", of.type, of.bytes, of.combine, of.identity))
        for value in item.moments:
            type_ = kernel.body.type(value)
            for part in ("m", "q"):
                found[number].append(add(f"{part}{value}", TYPES[type_], size_of(type_), "Sum", "0"))
    return found, used


class AcrossSums:
    """Prints the exchange of sums."""

    row: Coordinates
    """Of this thread, the first of its neighbours."""

    def __init__(self, kernel: Kernel, plan: AcrossSchedule, text: Text):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.rounds, self.served = rounds_of(kernel), served(kernel)
        self.sums, _ = sums_of(kernel, plan)
        self.known: dict[int, str] = {}
        """Values that are the same along a row, by their names in the text of one of neighbouring rows, j."""

    def _vector(self, tensor: int) -> str:
        return f"Vec<{STORED[tensors(self.kernel)[tensor].element]}, {neighbours(self.plan, tensor)}>"

    def _element(self, tensor: int, where: str = "") -> str:
        return f"element_of(x{tensor}{where}, {'j' if neighbours(self.plan, tensor) > 1 else '0'})"

    def _narrow(self) -> Scope:
        """A scope for what is the same along row j."""
        neighbour = "j" if self.plan.columns else ""
        scope = Scope(self.text, self.kernel, self._element, lambda dim: index_of(dim, neighbour, self.row))
        scope.names.update(self.known)
        return scope

    def _keep(self, values: Sequence[int]) -> None:
        """Compute values that are the same along a row, for all rows of this thread, unless they are there."""
        text, plan, kernel = self.text, self.plan, self.kernel
        new = [v for v in values if v not in self.known and not self._free(v)]
        for value in new:
            text.add(f"{TYPES[kernel.body.type(value)]} h{value}[{plan.width}];")
        if new:
            with text.each("j", plan.width):
                scope = self._narrow()
                for value in new:
                    text.add(f"h{value}[j] = {scope[value]};")
        self.known |= {value: f"h{value}[j]" for value in new}

    def _free(self, value: int) -> bool:
        line = line_of(self.kernel, value)
        return line is not None and line.op == "arith.constant"

    def _shared(self, each: Sum, offset: str = "0") -> str:
        return f"(reinterpret_cast<{each.type}*>(exchanged) + {offset})"

    def _total(self, each: Sum) -> str:
        """Where the sum of a row is in shared memory, by the row of the block."""
        named = [one.name for sums in self.sums.values() for one in sums]
        return self._row_of(named.index(each.name), each.type)

    def _row_of(self, number: int, type_: str) -> str:
        """A row of shared memory with a number for each row of the block."""
        start = passed(self.kernel, self.plan) + largest(self.kernel) * number * self.plan.tile
        return f"(reinterpret_cast<{type_}*>(reinterpret_cast<char*>(exchanged) + {start}))"

    def _pivots(self, value: int) -> str:
        """Where the pivots of a block are, by its row: after the sums."""
        behind = sum(map(len, self.sums.values()))
        order = [v for item in self.rounds for v in item.moments].index(value)
        return self._row_of(behind + order, TYPES[self.kernel.body.type(value)])

    def _hand_on(self, number: int, item: Round) -> None:
        """Add over the threads of a row, in each warp from lane to lane, then the warps from first to last; hand on the sums."""
        text, plan = self.text, self.plan
        for value in item.moments:
            with text.block("if (down == 0)"), text.each("j", plan.width):
                text.add(f"{self._pivots(value)}[across * {plan.width}u + j] = p{value}[j];")
        mine = f"if (threadIdx.x < {plan.tile}u)"
        for each in self.sums[number]:
            distance = plan.across
            while distance < WARP:
                with text.each("j", plan.width):
                    other = f"from_lane(s{each.name}[j], {distance})"
                    text.add(f"s{each.name}[j] = {each.combine}{{}}(s{each.name}[j], {other});")
                distance *= 2
            place = f"threadIdx.x / {WARP}u * {plan.tile}u + across * {plan.width}u + j"
            text.add("__syncthreads();")
            with text.block(f"if (threadIdx.x % {WARP}u < {plan.across}u)"), text.each("j", plan.width):
                text.add(f"{self._shared(each)}[{place}] = s{each.name}[j];")
            text.add("__syncthreads();")
            with text.block(mine):
                text.add(f"{each.type} sum = {self._shared(each)}[threadIdx.x];")
                with text.each("warp", THREADS // WARP):
                    other = f"{self._shared(each)}[warp * {plan.tile}u + threadIdx.x]"
                    text.add(f"if (warp > 0) sum = {each.combine}{{}}(sum, {other});")
                text.add(f"{self._total(each)}[threadIdx.x] = sum;")
        text.add("__syncthreads();")
        for value in item.moments:
            with text.block(mine):
                self._moments_of_block(number, value)
        if plan.parts == 1:
            if item.moments:
                text.add("__syncthreads();")
            return
        at = f"static_cast<long long>(part) * {plan.breadth} + tile * {plan.tile}u + threadIdx.x"
        with text.block(
            f"if (threadIdx.x < {plan.tile}u && tile * {plan.tile}u + threadIdx.x < {plan.breadth}u)"
        ):
            for each in self.sums[number]:
                target = f"partial<{each.type}>(workspace, {each.start}ll)[{at}]"
                text.add(f"{target} = {self._total(each)}[threadIdx.x];")

    def _pair(self, number: int, value: int) -> tuple[Sum, Sum]:
        first, second = (one for one in self.sums[number] if one.name in (f"m{value}", f"q{value}"))
        return first, second

    def _moments_of_block(self, number: int, value: int) -> None:
        """From sums of distances to the mean of the block's elements and the squares of their distances from it."""
        first, second = (self._total(one) for one in self._pair(number, value))
        type_ = TYPES[self.kernel.body.type(value)]
        self.text.add(
            f"const {type_} away = {first}[threadIdx.x], squares = {second}[threadIdx.x];",
            f"const {type_} count = static_cast<{type_}>(end - begin), rest = away / count;",
            f"{first}[threadIdx.x] = {self._pivots(value)}[threadIdx.x] + rest;",
            f"{second}[threadIdx.x] = larger(squares - away * rest, static_cast<{type_}>(0));",
        )

    def _totals(self, number: int) -> None:
        """Every thread gets the sums of its rows, from first to last by strands of parts, and what follows from moments."""
        text, plan = self.text, self.plan
        item = self.rounds[number]
        if plan.parts > 1:
            with text.block(""):
                self._add_parts(number, item)
        for each in self.sums[number]:
            text.add(f"{each.type} t{each.name}[{plan.width}];")
        with text.each("j", plan.width):
            for each in self.sums[number]:
                text.add(f"t{each.name}[j] = {self._total(each)}[across * {plan.width}u + j];")
        text.add("__syncthreads();")
        self.known |= {value: f"t{value}[j]" for value in item.reductions}
        for value in item.moments:
            self._from_moments(value)

    def _add_parts(self, number: int, item: Round) -> None:
        text, plan = self.text, self.plan
        strands = THREADS // plan.tile
        text.add(
            f"const unsigned column = threadIdx.x % {plan.tile}u, strand = threadIdx.x / {plan.tile}u;",
            f"const unsigned given = tile * {plan.tile}u + column, mine = given < {plan.breadth}u ? given : {plan.breadth - 1}u;",
        )
        moments = {f"{kind}{value}": (kind, value) for value in item.moments for kind in "mq"}
        for value in item.moments:
            first, _ = self._pair(number, value)
            text.add(f"const {first.type} near{value} = {self._partial(first, '0u')};")
        for each in self.sums[number]:
            text.add(f"{each.type} a{each.name}_ = {each.identity};")
        with text.block(f"for (unsigned other = strand; other < {plan.parts}u; other += {strands}u)"):
            if item.moments:
                rest = plan.height - (plan.parts - 1) * plan.each
                text.add(f"const unsigned count = other < {plan.parts - 1}u ? {plan.each}u : {rest}u;")
            for each in self.sums[number]:
                kind, value = moments.get(each.name, ("", -1))
                read, weight = self._partial(each, "other"), f"static_cast<{each.type}>(count)"
                if kind == "m":
                    text.add(f"const {each.type} off{value} = {read} - near{value};")
                    read = f"{weight} * off{value}"
                elif kind == "q":
                    read = f"{read} + {weight} * off{value} * off{value}"
                text.add(f"a{each.name}_ = {each.combine}{{}}(a{each.name}_, {read});")
        for each in self.sums[number]:
            text.add(
                "__syncthreads();", f"{self._shared(each)}[threadIdx.x] = a{each.name}_;", "__syncthreads();"
            )
            with text.block("if (strand == 0)"):
                with text.each("other", strands):
                    other = f"{self._shared(each)}[other * {plan.tile}u + column]"
                    text.add(f"if (other > 0) a{each.name}_ = {each.combine}{{}}(a{each.name}_, {other});")
                if each.name not in moments:
                    text.add(f"{self._total(each)}[column] = a{each.name}_;")
        for value in item.moments:
            first, second = self._pair(number, value)
            with text.block("if (strand == 0)"):
                text.add(
                    f"const {first.type} rest = a{first.name}_ / static_cast<{first.type}>({plan.height});",
                    f"{self._total(first)}[column] = near{value} + rest;",
                    f"const {first.type} squares = a{second.name}_ - a{first.name}_ * rest;",
                    f"{self._total(second)}[column] = larger(squares, static_cast<{first.type}>(0));",
                )
        text.add("__syncthreads();")

    def _partial(self, each: Sum, part: str) -> str:
        """What a block has handed on; not from the first-level cache."""
        start = f"partial<{each.type}>(workspace, {each.start}ll)"
        return f"handed_on({start} + (static_cast<long long>({part}) * {self.plan.breadth} + mine))"

    def _from_moments(self, value: int) -> None:
        """The sums that follow from the mean and the squares of the distances from it."""
        text, plan, kernel = self.text, self.plan, self.kernel
        type_, count = TYPES[kernel.body.type(value)], plan.height
        of_value = {sum_: of for sum_, of in self.served.items() if of.value == value}
        for power in (0, 1, 2):  # those of x come first: what is near the mean may follow from them
            these = {sum_: of for sum_, of in of_value.items() if of.power == power}
            self._keep([of.near for of in these.values() if of.near >= 0])
            for sum_, of in these.items():
                text.add(f"{type_} t{sum_}[{plan.width}];")
                with text.each("j", plan.width):
                    text.add(f"t{sum_}[j] = {self._sum(value, of, f'static_cast<{type_}>({count})')};")
                self.known[sum_] = f"t{sum_}[j]"

    def _sum(self, value: int, of: Served, count: str) -> str:
        mean, squares = f"tm{value}[j]", f"tq{value}[j]"
        if of.power == 0:
            return f"{mean} * {count}"
        near = self.known.get(of.near)
        if near is None:  # a constant
            near = self._narrow()[of.near]
        if of.power == 1:
            return f"({mean} - {near}) * {count}"
        return f"{squares} + ({mean} - {near}) * ({mean} - {near}) * {count}"
