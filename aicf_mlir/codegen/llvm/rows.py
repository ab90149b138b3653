"""Row kernels: a row is walked once for each level of reductions, then once more for the values that follow them.

Cheap values are computed again in each pass. Transcendental ones are kept in memory, if possible in a result that is written
later in any case.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors
from aicf_mlir.codegen.llvm.reductions import LANES, Reduction, reduce_along, reductions
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Walk, grain_of, lanes_for
from aicf_mlir.ir.body import REDUCTIONS, TRANSCENDENTAL, is_table
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, collapse

STACK = 65536
"""The bytes of values kept for a row on the stack; if there are more they are in the workspace."""


@dataclass
class RowWalk:
    """One walk over a row."""

    rows: list[Reduction] = field(default_factory=list[Reduction])
    results: list[int] = field(default_factory=list[int])
    """Stored here."""
    keeps: list[int] = field(default_factory=list[int])
    """Values that a later pass needs and does not compute again."""
    saved: list[int] = field(default_factory=list[int])
    """The kept values that exist in this pass."""
    loads: set[int] = field(default_factory=set[int])
    """Operands that it reads."""
    fed: tuple[int, ...] = ()
    """Values that column sums take."""

    def roots(self, kernel: Kernel) -> list[int]:
        """The values that the pass computes."""
        return [
            *(row.term for row in self.rows),
            *(kernel.body.results[result] for result in self.results),
            *self.keeps,
            *self.fed,
        ]


@dataclass(frozen=True)
class RowPlan:
    """The work of each pass, and the places where values wait."""

    passes: tuple[RowWalk, ...]
    homes: dict[int, int]
    """For each kept value that waits in the memory of a result, that result; others have memory of their own."""
    outers: tuple[Axis, ...]
    """The reduced dimensions' axes, all but the inner one."""
    inner: Axis

    @property
    def extent(self) -> int:
        """Points of a row."""
        return prod(axis.size for axis in self.outers) * self.inner.size

    def apart(self) -> list[int]:
        """The kept values with memory of their own."""
        return [value for one in self.passes for value in one.keeps if value not in self.homes]


def reduced_axes(kernel: Kernel) -> tuple[tuple[Axis, ...], Axis]:
    """The outer axes and the inner one of the reduced dimensions: most tensors are contiguous along the inner one."""
    axes = collapse(kernel, list(kernel.reduced_dims)) or [Axis((), 1, (0,) * len(tensors(kernel)))]
    inner = max(axes, key=lambda axis: (axis.strides.count(1), axes.index(axis)))
    return tuple(axis for axis in axes if axis is not inner), inner


@lru_cache(maxsize=256)
def row_plan(kernel: Kernel, fed: tuple[int, ...] = ()) -> RowPlan:
    """The plan for walking a row; column sums take the values `fed` in the first pass."""
    body, stages = kernel.body, kernel.body.stages
    whole = [number for number in range(len(body.results)) if kernel.is_whole(number)]
    rows = reductions(kernel)
    last = max([stages[row.term] for row in rows] + [stages[body.results[n]] for n in whole], default=-1)
    passes = [RowWalk() for _ in range(max(last + 1, int(bool(fed))))]
    if fed:
        passes[0].fed = fed
    for row in rows:
        passes[stages[row.term]].rows.append(row)
    in_place = {result for result, _ in kernel.in_place}
    for number in whole:
        # A result that may share memory with an operand is written when nothing reads the operand any more.
        passes[last if number in in_place else stages[body.results[number]]].results.append(number)
    _keep(kernel, passes)
    return RowPlan(tuple(passes), _homes(kernel, passes), *reduced_axes(kernel))


def _keep(kernel: Kernel, passes: list[RowWalk]) -> None:
    """Find the transcendental values that more than one pass needs."""
    body = kernel.body
    first: dict[int, int] = {}
    for number, one in enumerate(passes):
        seen: set[int] = set()
        pending = one.roots(kernel)
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value < len(body.args):
                if not is_table(body.args[value]):
                    one.loads.add(value)
                continue
            line = body.lines[value - len(body.args)]
            if line.op in REDUCTIONS:
                continue
            if line.op in TRANSCENDENTAL and kernel.wide[value] and first.setdefault(value, number) < number:
                one.saved.append(value)
                if value not in passes[first[value]].keeps:
                    passes[first[value]].keeps.append(value)
                continue
            pending += line.args
    for one in passes:
        one.keeps.sort()
        one.saved.sort()


def _homes(kernel: Kernel, passes: list[RowWalk]) -> dict[int, int]:
    """A result for each kept value that can wait in its memory until it is written."""
    body, (_, inner) = kernel.body, reduced_axes(kernel)
    found: dict[int, int] = {}
    written = {result: number for number, one in enumerate(passes) for result in one.results}
    for number, one in enumerate(passes):
        for value in one.keeps:
            until = max(at for at, other in enumerate(passes) if value in other.saved)
            for result, at in written.items():
                tensor = kernel.results[result]
                fits = (
                    tensor.element == body.type(value)
                    and len(collapse(kernel, list(kernel.reduced_dims))) == 1
                )
                fits = fits and inner.strides[len(body.args) + result] == 1
                own = body.results[result] == value
                if not fits or result in found.values() or not (at >= until or own):
                    continue
                # An operand in the same memory must not be read after this pass.
                beside = {operand for other, operand in kernel.in_place if other == result}
                if any(beside & later.loads for later in passes[number + 1 :]):
                    continue
                found[value] = result
                break
    return found


def row_workspace(kernel: Kernel, fed: tuple[int, ...] = ()) -> int:
    """The bytes for kept values that no result has room for and that are too many for the stack; `fed` as in `row_plan`."""
    plan = row_plan(kernel, fed)
    size = _apart_bytes(kernel, plan)
    return size * prod(kernel.kept) if size > STACK else 0


def _apart_bytes(kernel: Kernel, plan: RowPlan) -> int:
    """The bytes of the kept values of one row that have memory of their own; each value's part is a multiple of 64 bytes."""
    return sum(_part(kernel, plan, value) for value in plan.apart())


def _part(kernel: Kernel, plan: RowPlan, value: int) -> int:
    return -(-byte_size(kernel.body.type(value), (plan.extent,)) // 64) * 64


def row_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    """One phase whose items are rows."""
    plan = row_plan(kernel)
    count = prod(kernel.kept)
    function = Function()
    if count:
        RowWriter(function, kernel, plan).write()
    return [(Phase(f"{kernel.symbol}_0", count, grain_of(kernel, plan.extent)), function)]


class RowWriter:
    """Writes the loop over rows."""

    def __init__(self, function: Function, kernel: Kernel, plan: RowPlan) -> None:
        self.function, self.kernel, self.plan = function, kernel, plan
        self.kept = collapse(kernel, range(len(kernel.kept)))
        self.lanes = lanes_for(kernel, plan.inner.size, LANES)
        self.scratch: dict[int, str] = {}
        self.size = _apart_bytes(self.kernel, self.plan)
        self.stack = self.function.stack("i8", self.size) if 0 < self.size <= STACK else ""

    def write(self) -> None:
        """Write all rows from %begin to %end."""
        self.rows("%begin", "%end")

    def rows(self, begin: str, end: str) -> None:
        """Write the rows from `begin` to `end`."""

        def item(index: str, carried: list[Value]) -> list[Value]:
            at = self.function.unravel(index, [axis.size for axis in self.kept])
            place = LoopPosition.origin(self.kernel).moved(self.function, self.kernel, self.kept, at)
            self._place_scratch(place, index, self.stack, self.size)
            self.row(place)
            return carried

        self.function.loop(begin, end, 1, [], item)

    def _place_scratch(self, place: LoopPosition, index: str, stack: str, size: int) -> None:
        base = stack
        if size and not stack:
            base = self.function.pointer("%workspace", "i8", self.function.multiply(index, size))
        for value in self.plan.apart():
            self.scratch[value] = base
            base = self.function.pointer(base, "i8", str(_part(self.kernel, self.plan, value)))
        for value, result in self.plan.homes.items():
            self.scratch[value] = place.pointers[len(self.kernel.operands) + result]

    def row(self, place: LoopPosition) -> None:
        """Write all passes over one row, and its results."""
        kernel, row = self.kernel, Point(self.function, self.kernel, place)
        # Before anything is written.
        row.evaluate(
            n for n, type_ in enumerate(kernel.body.args) if not is_table(type_) and not kernel.wide[n]
        )
        for number, one in enumerate(self.plan.passes):
            totals = self._pass(row, one, ahead=number > 0 and number == len(self.plan.passes) - 1)
            for reduction, total in zip(one.rows, totals, strict=True):
                row.known[reduction.value] = reduction.finish(self.function, total)
        for result in range(len(kernel.results)):
            if not kernel.is_whole(result):
                row.store(result)

    def feed(self, point: Point, fed: tuple[int, ...], outer: str) -> None:
        """Add the values `fed` of a point to column sums; `outer` counts the outer reduced axes."""

    def _pass(self, row: Point, one: RowWalk, ahead: bool) -> list[Value]:
        plan, function, kernel = self.plan, self.function, self.kernel
        totals = [reduction.start(reduction.total_type) for reduction in one.rows]

        def along(
            place: LoopPosition, offset: str, totals: list[Value], outer_index: str = "0"
        ) -> list[Value]:
            outer = row if place is row.place else Point(function, kernel, place, splats=row.known)
            moved = {
                value: function.pointer(self.scratch[value], _llvm(kernel, value), offset)
                for value in (*one.keeps, *one.saved)
            }
            walk = Walk(
                outer, plan.inner, kernel.wide, one.roots(kernel), self.lanes, LANES,
                saved={value: moved[value] for value in one.saved},
                keeps={value: moved[value] for value in one.keeps},
                ahead=self.kept[-1] if ahead and self.kept else None,
            )  # fmt: skip
            return reduce_along(
                walk, one.rows, "0", str(plan.inner.size), totals, one.results,
                lambda point: self.feed(point, one.fed, outer_index),
            )  # fmt: skip

        if not plan.outers:
            return along(row.place, "0", totals)
        # Values that a row has once are computed before the loop over its parts.
        Walk(row, plan.inner, kernel.wide, one.roots(kernel), self.lanes, LANES)

        def part(index: str, before: list[Value]) -> list[Value]:
            at = function.unravel(index, [axis.size for axis in plan.outers])
            place = row.place.moved(function, kernel, plan.outers, at)
            return along(place, function.multiply(index, plan.inner.size), before, index)

        count = prod(axis.size for axis in plan.outers)
        return function.loop("0", str(count), 1, totals, part)


def _llvm(kernel: Kernel, value: int) -> str:
    return {"f32": "float", "f64": "double"}[kernel.body.type(value)]
