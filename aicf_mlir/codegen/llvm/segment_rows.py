"""Reductions of many tensors to numbers: one function sums a part of a segment, another adds the parts of one.

The order of the sums is that of a launch of its own for each segment, long ones in parts as in `split.py`.
"""

from __future__ import annotations

import itertools

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.maps import store_all
from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors
from aicf_mlir.codegen.llvm.reductions import BLOCK as TERMS
from aicf_mlir.codegen.llvm.reductions import LANES, Reduction, accumulate, reductions
from aicf_mlir.codegen.llvm.segments import (
    ATTRIBUTES,
    address,
    define,
    define_phase,
    each_segment,
    libm_of,
    workspace_of,
)
from aicf_mlir.codegen.llvm.split import BLOCK, SLOT
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Walk, grain_of
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, strides_along
from aicf_mlir.kernels.segments import RowEachKernel


def _parts(count: int) -> int:
    """The number of parts of a segment, each of BLOCK points but the last, or one part of all points."""
    return int(count > 0) if count < 2 * BLOCK else -(-count // BLOCK)


def _firsts(kernel: RowEachKernel) -> list[int]:
    """The number of the first part of each segment, and of all parts."""
    return list(itertools.accumulate(map(_parts, kernel.counts), initial=0))


def row_each_workspace(kernel: Kernel) -> int:
    """Bytes of the partial results."""
    assert isinstance(kernel, RowEachKernel)
    return _firsts(kernel)[-1] * len(reductions(kernel)) * SLOT


def row_each_phases(kernel: RowEachKernel) -> list[Phase]:
    """The phase that reduces parts, and the one that combines them."""
    parts = _firsts(kernel)[-1]
    mean = sum(kernel.counts) // max(parts, 1)
    return [
        Phase(f"{kernel.symbol}_0", parts, grain_of(kernel.longest, mean)),
        Phase(f"{kernel.symbol}_1", kernel.segments, max(1, 4000 * kernel.segments // max(parts, 1))),
    ]


def row_each_module(kernel: RowEachKernel) -> str:
    """The text."""
    one = kernel.longest
    part, row, first, second = (Function() for _ in range(4))
    _write_part(part, one)
    _write_row(row, one)
    _write_first(first, kernel)
    _write_second(second, kernel)
    named = [f"ptr noalias %a{number}" for number in range(len(tensors(one)))]
    behind = ["ptr noalias readonly %libm", "ptr %slots"]
    lines = [
        f"; {kernel.symbol}",
        *define(f"{kernel.symbol}_part", [*named, *behind, "i64 %begin", "i64 %end", "i64 %count"], part),
        *define(f"{kernel.symbol}_row", [*named, *behind, "i64 %parts"], row),
        *define_phase(f"{kernel.symbol}_0", first),
        *define_phase(f"{kernel.symbol}_1", second),
        *sorted(part.declared | row.declared | first.declared | second.declared),
        *ATTRIBUTES,
    ]
    return "\n".join([*lines, ""])


def _slot(function: Function, rows: list[Reduction], part: str, number: int) -> str:
    """The address of a partial result of part number `part` of the segment."""
    index = function.add(function.multiply(part, len(rows)), number)
    return function.pointer("%slots", "i64", index)


def _write_part(function: Function, one: Kernel) -> None:
    """Write parts `begin` to `end` of the segment of `count` points at these addresses, each to a slot for each reduction."""
    rows = reductions(one)
    roots = [row.term for row in rows]
    axis = Axis((0,), one.domain[0], tuple(strides_along(one, 0)))
    point = Point(function, one, LoopPosition.origin(one))
    vectors, singles = (Walk(point, axis, one.wide, roots, lanes) for lanes in (LANES, 1))

    def block(index: str, before: list[Value], end: str) -> list[Value]:
        last = function.smaller(function.add(index, TERMS), end)
        left = function.new(f"sub nuw nsw i64 {last}, {index}")
        whole = function.add(index, function.new(f"and i64 {left}, {-LANES}"))
        start = [row.start(row.type, LANES) for row in rows]

        def vector(index: str, sums: list[Value]) -> list[Value]:
            return list(vectors.at(index, lambda at, _: accumulate(at, rows, sums)))

        def single(index: str, rest: list[Value]) -> list[Value]:
            lane = function.new(f"sub nuw nsw i64 {index}, {whole}")

            def act(at: Point, _: list[Value]) -> list[Value]:
                terms = [at[row.term] for row in rows]
                added = (
                    f"insertelement {one}, {term}, i64 {lane}" for one, term in zip(rest, terms, strict=True)
                )
                return [
                    Value(function.new(text), row.type, LANES) for text, row in zip(added, rows, strict=True)
                ]

            return list(singles.at(index, act))

        sums = function.loop(index, whole, LANES, start, vector)
        rest = function.loop(whole, last, 1, start, single)
        return [
            row.total(function, total, row.tree(function, row.combine(function, most, few)))
            for row, total, most, few in zip(rows, before, sums, rest, strict=True)
        ]

    def part(number: str, carried: list[Value]) -> list[Value]:
        begin = function.multiply(number, BLOCK)
        end = function.new(
            f"select i1 {alone}, i64 %count, i64 {function.smaller(function.add(begin, BLOCK), '%count')}"
        )
        totals = [row.start(row.total_type) for row in rows]
        totals = function.loop(begin, end, TERMS, totals, lambda index, sums: block(index, sums, end))
        for at, total in enumerate(totals):
            memory.store(function, total, _slot(function, rows, number, at), total.type)
        return carried

    alone = function.new(f"icmp slt i64 %count, {2 * BLOCK}")
    function.loop("%begin", "%end", 1, [], part)


def _write_row(function: Function, one: Kernel) -> None:
    """Write the results of a segment from its parts."""
    rows = reductions(one)

    def part(number: str, before: list[Value]) -> list[Value]:
        totals: list[Value] = []
        for at, (row, total) in enumerate(zip(rows, before, strict=True)):
            given = memory.load(function, _slot(function, rows, number, at), total.type)
            totals.append(row.combine(function, total, given))
        return totals

    totals = function.loop("0", "%parts", 1, [row.start(row.total_type) for row in rows], part)
    point = Point(function, one, LoopPosition.origin(one))
    for row, total in zip(rows, totals, strict=True):
        point.known[row.value] = row.finish(function, total)
    store_all(point, [])


def _segment_arguments(function: Function, kernel: RowEachKernel, number: int) -> list[str]:
    """The addresses of a segment, the table of functions, and the start of its partial results."""
    first = _firsts(kernel)[number] * len(reductions(kernel))
    slots = function.pointer(workspace_of(function, kernel), "i64", str(first))
    named = [address(function, at) for at in kernel.addresses(number)]
    return [f"ptr {name}" for name in (*named, libm_of(function, kernel), slots)]


def _write_first(function: Function, kernel: RowEachKernel) -> None:
    def call(number: int, begin: str, end: str) -> None:
        arguments = _segment_arguments(function, kernel, number)
        arguments += [f"i64 {begin}", f"i64 {end}", f"i64 {kernel.counts[number]}"]
        function.emit(f"call void @{kernel.symbol}_part({', '.join(arguments)})")

    each_segment(function, _firsts(kernel), call)


def _write_second(function: Function, kernel: RowEachKernel) -> None:
    firsts = _firsts(kernel)

    def call(number: int, begin: str, end: str) -> None:
        arguments = _segment_arguments(function, kernel, number)
        arguments.append(f"i64 {firsts[number + 1] - firsts[number]}")
        function.emit(f"call void @{kernel.symbol}_row({', '.join(arguments)})")

    each_segment(function, range(kernel.segments + 1), call)
