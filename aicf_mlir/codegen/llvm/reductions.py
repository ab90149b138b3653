"""Sums, products and extrema along an axis, in an order that the shape alone decides.

The order is that of csrc/kernels/common/cpu_sum.h: term i of a block of 512 goes to lane i % 16, and the lanes are added in
halves. The blocks are added in order, in f64 if they are f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.llvm.operations import binary, cast
from aicf_mlir.codegen.llvm.point import Point
from aicf_mlir.codegen.llvm.text import Function, Value, constant, suffix
from aicf_mlir.codegen.llvm.walk import Walk
from aicf_mlir.ir.body import BITS, REDUCTIONS, is_float
from aicf_mlir.kernels.kernel import Kernel

BLOCK = 512
LANES = 16


@dataclass(frozen=True)
class Reduction:
    """A line that reduces."""

    value: int
    """The value's number in the body."""
    term: int
    """The value that it reduces."""
    kind: str
    """sum, prod, max or min."""
    type: str

    @property
    def total_type(self) -> str:
        """The type that blocks are combined in."""
        return "f64" if self.type == "f32" and self.kind in ("sum", "prod") else self.type

    def lanes(self, most: int) -> int:
        """The number of lanes in which terms meet; all available lanes if the order does not affect the result."""
        return LANES if is_float(self.type) and self.kind in ("sum", "prod") else most

    def identity(self) -> float | int:
        """The identity of the reduction."""
        if self.kind in ("sum", "prod"):
            return int(self.kind == "prod")
        least = self.kind == "max"
        if is_float(self.type):
            return -math.inf if least else math.inf
        if self.type == "i1":
            return int(not least)
        bits = BITS[self.type] - 1
        return -(2**bits) if least else 2**bits - 1

    def start(self, type_: str, lanes: int = 1) -> Value:
        """The identity in every lane."""
        number = self.identity()
        return constant(float(number) if is_float(type_) else int(number), type_, lanes)

    def combine(self, function: Function, left: Value, right: Value) -> Value:
        """Lane by lane; a NaN survives."""
        floats = is_float(left.type)
        if self.kind in ("sum", "prod"):
            name = {"sum": "add", "prod": "mul"}[self.kind]
            return binary(function, f"f{name}" if floats else name, left, right)
        if left.type == "i1":
            return binary(function, "or" if self.kind == "max" else "and", left, right)
        name = {"max": "maximum", "min": "minimum"}[self.kind] if floats else f"s{self.kind}"
        full = f"llvm.{name}.{suffix(left.type, left.lanes)}"
        text = function.call(full, left.llvm, (left.llvm, left.text), (right.llvm, right.text))
        return Value(text, left.type, left.lanes)

    def tree(self, function: Function, value: Value) -> Value:
        """Combine all lanes to one: the upper half onto the lower, again and again."""
        while value.lanes > 1:
            half = value.lanes // 2
            value = self.combine(function, function.lanes(value, 0, half), function.lanes(value, half, half))
        return value

    def total(self, function: Function, total: Value, block: Value) -> Value:
        """`total` with one more block."""
        wide = block if block.type == self.total_type else cast(function, "fpext", block, "f64")
        return self.combine(function, total, wide)

    def finish(self, function: Function, total: Value) -> Value:
        """The total in the type of the reduction."""
        return total if total.type == self.type else cast(function, "fptrunc", total, self.type)


def reductions(kernel: Kernel) -> list[Reduction]:
    """All reductions of a body, in order."""
    first = len(kernel.body.args)
    return [
        Reduction(first + number, line.args[0], line.op.removeprefix("scalar."), line.type)
        for number, line in enumerate(kernel.body.lines)
        if line.op in REDUCTIONS
    ]


def _with_identity(function: Function, row: Reduction, value: Value, valid: int, lanes: int) -> Value:
    """`lanes` lanes, which hold the identity from `valid` on."""
    picked = ", ".join(f"i32 {lane if lane < value.lanes else 'poison'}" for lane in range(lanes))
    if lanes != value.lanes:
        name = function.new(f"shufflevector {value}, {value.llvm} poison, <{lanes} x i32> <{picked}>")
        value = Value(name, value.type, lanes)
    other = row.start(value.type, lanes)
    picked = ", ".join(f"i32 {lane if lane < valid else lanes + lane}" for lane in range(lanes))
    name = function.new(f"shufflevector {value}, {other}, <{lanes} x i32> <{picked}>")
    return Value(name, value.type, lanes)


def accumulate(point: Point, rows: Sequence[Reduction], sums: Sequence[Value]) -> list[Value]:
    """`sums` with the terms at a point."""
    totals: list[Value] = []
    assert point.lanes is not None
    for row, total in zip(rows, sums, strict=True):
        term = point[row.term]
        if point.lanes.valid is not None:
            lanes = max(term.lanes, total.lanes)
            term = _with_identity(point.function, row, term, point.lanes.valid, lanes)
        for first in range(0, term.lanes, total.lanes):
            total = row.combine(point.function, total, point.function.lanes(term, first, total.lanes))
        totals.append(total)
    return totals


def reduce_along(
    walk: Walk,
    rows: Sequence[Reduction],
    begin: str,
    end: str,
    totals: Sequence[Value],
    results: Sequence[int],
    feed: Callable[[Point], None] = lambda point: None,
) -> list[Value]:
    """`totals` with the terms from `begin` to `end`, each a multiple of 512 or the extent.

    On the way `results` are stored, the values that `walk.keep` names are left in memory, and `feed` sees each point.
    """
    function = walk.function

    def act(point: Point, sums: list[Value]) -> list[Value]:
        added = accumulate(point, rows, sums)
        walk.leave(point)
        feed(point)
        for result in results:
            point.store(result)
        return added

    if not rows:
        walk.run(begin, end, [], act)
        return []

    def block(index: str, before: list[Value]) -> list[Value]:
        start = [row.start(row.type, row.lanes(walk.lanes)) for row in rows]
        last = function.smaller(function.add(index, BLOCK), end)
        sums = walk.run(index, last, start, act)
        return [
            row.total(function, total, row.tree(function, one))
            for row, total, one in zip(rows, before, sums, strict=True)
        ]

    return function.loop(begin, end, BLOCK, totals, block)
