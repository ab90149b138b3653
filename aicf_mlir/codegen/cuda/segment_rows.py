"""Reductions of many tensors to numbers: blocks sum parts of a segment, then a warp adds the parts of each.

The length of a part, and so the order of the sums, follows from the element types and their alignment alone.
"""

from __future__ import annotations

from itertools import accumulate

from aicf_mlir.codegen.cuda.access import Coordinates, begin, fetch, head, integer, pointer, varying, width
from aicf_mlir.codegen.cuda.column_schedules import reductions
from aicf_mlir.codegen.cuda.columns import places
from aicf_mlir.codegen.cuda.scalars import STORED, stored
from aicf_mlir.codegen.cuda.segments import ADDRESSES, declare_addresses, find_segment, pointers, table
from aicf_mlir.codegen.cuda.text import Scope, Text, closure, reduction
from aicf_mlir.kernels.kernel import Axis, Code, Kernel, Phase, strides_along
from aicf_mlir.kernels.segments import RowEachKernel

THREADS = 256
WARP = 32
VECTORS = 8
"""The number of vectors that a thread takes of a part."""


def _axis(kernel: RowEachKernel) -> Axis:
    one = kernel.longest
    return Axis((0,), one.domain[0], tuple(strides_along(one, 0)))


def _width(kernel: RowEachKernel) -> int:
    axis = _axis(kernel)
    return width(kernel.longest, [axis], 0, varying(kernel.longest, [axis]))


def _firsts(kernel: RowEachKernel) -> list[int]:
    """The number of the first part of each segment, and of all parts."""
    length = THREADS * VECTORS * _width(kernel)
    return list(accumulate((-(-count // length) for count in kernel.counts), initial=0))


def workspace(kernel: RowEachKernel) -> int:
    """Bytes of partial results."""
    return places(kernel.longest, _firsts(kernel)[-1])[1]


def code(kernel: RowEachKernel) -> Code:
    """The text and its two launches."""
    firsts = _firsts(kernel)
    kind = integer(2 * max(kernel.counts) + THREADS * VECTORS * 16)
    first, second = f"{kernel.symbol}_parts", f"{kernel.symbol}_rows"
    text = Text()
    declare_addresses(text, kernel)
    table(text, "unsigned first_part", firsts)
    table(text, f"{kind} points", kernel.counts)
    with text.block(head([ADDRESSES], first, THREADS)):
        begin(text)
        find_segment(text, kernel, "first_part")
        pointers(text, kernel, kernel.longest)
        _part(text, kernel, kind)
    with text.block(head([ADDRESSES], second, THREADS)):
        begin(text)
        _row(text, kernel)
    rows = -(-kernel.segments // (THREADS // WARP))
    phases = Phase(first, firsts[-1], threads=THREADS), Phase(second, rows, threads=THREADS)
    return Code(str(text), phases, workspace(kernel), one_table=True)


def _part(text: Text, kernel: RowEachKernel, kind: str) -> None:
    """Reduce a part of the segment, element by element, to one partial result of each reduction."""
    one, axis, wide = kernel.longest, _axis(kernel), _width(kernel)
    outer = Scope(text, one, lambda operand: f"widen({pointer(one, operand)}[0])", _no_index)
    values = reductions(one)
    arguments = [reduction(one, value).argument for value in values]
    outer.need(value for value in closure(one, arguments) if not one.wide[value])
    for value in values:
        of = reduction(one, value)
        text.add(f"{of.type} s{value} = {of.identity};")
    length = THREADS * VECTORS * wide
    text.add(f"const {kind} count = points[segment];")
    text.add(f"const {kind} begin = static_cast<{kind}>(blockIdx.x - first_part[segment]) * {length};")
    text.add(f"const {kind} end = begin + {length} < count ? begin + {length} : count;")
    text.add(f"{kind} c = begin + static_cast<{kind}>(threadIdx.x) * {wide};")
    text.add("#pragma unroll 4")
    with text.block(f"for (; c + {wide} <= end; c += {THREADS * wide})"):
        _elements(text, one, Coordinates((axis,), ("c",)), wide, outer)
    if wide > 1:
        with text.block("for (; c < end; ++c)"):  # the one thread that has the last few
            _elements(text, one, Coordinates((axis,), ("c",)), 1, outer)
    starts, _ = places(one, _firsts(kernel)[-1])
    for value in values:
        of = reduction(one, value)
        text.add(f"s{value} = over_lanes<{of.combine}, {WARP}>(s{value});")
        text.add(f"__shared__ {of.type} w{value}[{THREADS // WARP}];")
        text.add(f"if (threadIdx.x % {WARP}u == 0) w{value}[threadIdx.x / {WARP}u] = s{value};")
    text.add("__syncthreads();", "if (threadIdx.x != 0) return;")
    for start, value in zip(starts, values, strict=True):
        of = reduction(one, value)
        total = f"in_order<{of.combine}, {THREADS // WARP}>(w{value})"
        text.add(f"partial<{of.type}>(workspace, {start}ll)[blockIdx.x] = {total};")


def _elements(text: Text, one: Kernel, place: Coordinates, count: int, outer: Scope) -> None:
    """Add `count` neighbours, all of which exist, to the sums."""
    values = reductions(one)
    arguments = [reduction(one, value).argument for value in values]
    for number, tensor in enumerate(one.operands):
        if one.wide[number]:
            text.add(f"Vec<{STORED[tensor.element]}, {count}> x{number};")
            fetch(text, one, place, number, count, f"x{number}")
    with text.each("j", count):
        scope = Scope(text, one, lambda operand: f"element_of(x{operand}, j)", _no_index, outer)
        for value, argument in zip(values, arguments, strict=True):
            text.add(f"s{value} = {scope.added(f's{value}', argument, reduction(one, value).combine)};")


def _row(text: Text, kernel: RowEachKernel) -> None:
    """Add the parts of a segment, in their order over the lanes of a warp, and the values that follow from their sum."""
    one = kernel.longest
    starts, _ = places(one, _firsts(kernel)[-1])
    values = reductions(one)
    text.add(f"const unsigned lane = threadIdx.x % {WARP}u;")
    text.add(f"const unsigned segment = blockIdx.x * {THREADS // WARP}u + threadIdx.x / {WARP}u;")
    text.add(f"if (segment >= {kernel.segments}u) return;")
    pointers(text, kernel, one)
    for start, value in zip(starts, values, strict=True):
        of = reduction(one, value)
        text.add(f"{of.type} s{value} = {of.identity};")
        parts = "unsigned part = first_part[segment] + lane; part < first_part[segment + 1]"
        with text.block(f"for ({parts}; part += {WARP}u)"):
            at = f"partial<{of.type}>(workspace, {start}ll)[part]"
            text.add(f"s{value} = {of.combine}{{}}(s{value}, {at});")
        text.add(f"s{value} = over_lanes<{of.combine}, {WARP}>(s{value});")
    text.add("if (lane != 0) return;")
    scope = Scope(text, one, lambda operand: f"widen({pointer(one, operand)}[0])", _no_index)
    scope.names.update({value: f"s{value}" for value in values})
    for number, tensor in enumerate(one.results):
        result = pointer(one, len(one.operands) + number)
        text.add(f"{result}[0] = {stored(tensor.element, scope[one.body.results[number]])};")


def _no_index(dim: int) -> str:
    raise AssertionError(f"the body of a segment asks for index {dim}")
