"""A loop over one axis, many lanes at a time, and how many lanes that should be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aicf_mlir.codegen.functions import LIBM_ENTRY, formula
from aicf_mlir.codegen.llvm.memory import STORED
from aicf_mlir.codegen.llvm.point import Lanes, Point, needed
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.kernels.kernel import Axis, Kernel

LANES = 64
"""The lanes for values of 32 bits: polynomials wait for their own results, and this many can be in progress at once."""
WIDE_LANES = 16
"""The lanes if values of 64 bits are computed, or tables are read."""
CALL_LANES = 8
"""The lanes if a library is called lane by lane."""

FEWEST = 4
"""The fewest lanes."""
LINE = 64
"""Bytes that a processor fetches at once."""

Act = Callable[[Point, list[Value]], Sequence[Value]]


def _line_lanes(op: str, type_: str, count: int) -> int:
    body = formula(op, type_, count)
    if body is not None:
        return WIDE_LANES if any(line.type in ("f64", "i64") for line in body.lines) else LANES
    if type_ == "f64" and op in LIBM_ENTRY:
        return CALL_LANES
    return WIDE_LANES if type_ in ("f64", "i64") or op == "scalar.load" else LANES


def lanes_for(kernel: Kernel, extent: int, least: int = FEWEST) -> int:
    """The number of lanes that walk an axis of `extent` points: a power of two from `least` on."""
    body = kernel.body
    most = min((_line_lanes(line.op, line.type, len(line.args)) for line in body.lines), default=LANES)
    if any(tensor.element in ("f64", "i64") for tensor in (*kernel.operands, *kernel.results)):
        most = min(most, WIDE_LANES)
    return max(least, min(most, power_of_two(extent)))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(number - 1, 0).bit_length()


def nanoseconds(kernel: Kernel) -> float:
    """The approximate cost of one point of the domain."""
    cost = 0.1 * len(kernel.operands) + 0.1 * len(kernel.results)
    for line in kernel.body.lines:
        body = formula(line.op, line.type, len(line.args))
        if body is not None:
            cost += 0.01 * len(body.lines)
        else:
            cost += 10.0 if line.type == "f64" and line.op in LIBM_ENTRY else 0.02
    return cost


def grain_of(kernel: Kernel, points: int) -> int:
    """The least number of items of `points` points that are worth a thread: 4 microseconds."""
    return max(1, int(4000 / (nanoseconds(kernel) * max(points, 1))))


class Walk:
    """The loop over an axis from a place: values that do not vary along it are computed before it."""

    def __init__(
        self,
        outer: Point,
        axis: Axis,
        varies: Sequence[bool],
        roots: Sequence[int],
        lanes: int,
        least: int = 4,
        saved: Mapping[int, str] | None = None,
        keeps: Mapping[int, str] | None = None,
        ahead: Axis | None = None,
        given: tuple[Sequence[int], Callable[[Point], None]] = ((), lambda point: None),
    ) -> None:
        self.outer, self.axis, self.roots, self.lanes, self.least = outer, axis, roots, lanes, least
        self.saved, self.keeps = saved or {}, keeps or {}
        """The memory of values from an earlier pass, and of values for a later one."""
        self.ahead = ahead
        """The axis whose operands are needed soon: the operands two steps further are fetched."""
        self.given = given
        """Values that a function finds at each vector before the others are computed."""
        values = needed(outer.kernel, roots, {*self.saved, *given[0]})
        self.fixed = [value for value in values if not varies[value]]
        # Constants and values that only lead to other fixed values need no lanes of their own.
        used = {value for value in roots if not varies[value]}
        body = outer.kernel.body
        for value in values:
            if varies[value] and value >= len(body.args):
                used.update(arg for arg in body.lines[value - len(body.args)].args if not varies[arg])
        self.used = sorted(used & set(self.fixed))
        outer.evaluate(self.used)
        self._splats: dict[int, dict[int, Value]] = {}
        for count in {lanes, self._tail_lanes}:
            self._splats[count] = {v: outer.function.splat(outer[v], count) for v in self.used}

    @property
    def function(self) -> Function:
        """The function that the text is added to."""
        return self.outer.function

    @property
    def _rest(self) -> int:
        """The points after the last full vector."""
        return self.axis.size % self.lanes

    @property
    def _tail_lanes(self) -> int:
        return min(self.lanes, max(self.least, power_of_two(self._rest)))

    def _point(self, index: str, count: int, valid: int | None) -> Point:
        lanes = Lanes(self.axis, index, count, valid)
        outer = self.outer
        return Point(outer.function, outer.kernel, outer.place, lanes, outer, self._splats[count], self.saved)

    def run(self, begin: str, end: str, carried: Sequence[Value], act: Act) -> list[Value]:
        """Run from `begin`, a multiple of the lanes, to `end`, which is another multiple or the whole extent.

        `act` receives the values `roots` at each vector and the carried values, and returns the new carried values.
        """
        rest = self._rest
        whole = self.axis.size - rest

        def full(index: str, before: list[Value]) -> Sequence[Value]:
            return self._act(self._point(index, self.lanes, None), before, act)

        def last(index: str, before: list[Value]) -> Sequence[Value]:
            return self._act(self._point(index, self._tail_lanes, rest), before, act)

        values = list(carried)
        if whole:
            values = self.function.loop(begin, self.function.smaller(end, whole), self.lanes, values, full)
        if rest:
            known = begin.isdecimal() and end.isdecimal()
            start = str(max(int(begin), whole)) if known else str(whole)
            values = self.function.loop(start, end, self.lanes, values, last)
        return values

    def at(self, index: str, act: Act) -> Sequence[Value]:
        """Emit one full vector."""
        return self._act(self._point(index, self.lanes, None), [], act)

    def leave(self, point: Point) -> None:
        """Write the values that a later pass needs."""
        for value, pointer in self.keeps.items():
            point.save(value, pointer)

    def _fetch(self, point: Point) -> None:
        """Prefetch for the processor the reads two steps further along `ahead`."""
        kernel, function = point.kernel, point.function
        if self.ahead is None or point.lanes is None or point.lanes.valid is not None:
            return
        for number, tensor in enumerate(kernel.operands):
            step, size = self.ahead.strides[number], byte_size(tensor.element, ())
            if self.axis.strides[number] != 1 or not step:
                continue
            kind = STORED[tensor.element]
            first = function.pointer(point.place.pointers[number], kind, self._index(point))
            for line in range(0, max(point.count * size, LINE), LINE):
                offset = str(2 * step + line // size)
                address = function.pointer(first, kind, offset)
                arguments = (("ptr", address), ("i32", "0"), ("i32", "3"), ("i32", "1"))
                function.call("llvm.prefetch.p0", "void", *arguments)

    @staticmethod
    def _index(point: Point) -> str:
        assert point.lanes is not None
        return point.lanes.index

    def _act(self, point: Point, before: list[Value], act: Act) -> Sequence[Value]:
        self.given[1](point)
        point.evaluate(self.roots)
        self._fetch(point)
        return act(point, before)
