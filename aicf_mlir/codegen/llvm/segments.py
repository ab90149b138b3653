"""Maps over many tensors: one function walks a part of a segment, the one of the phase calls it for each segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from aicf_mlir.codegen.llvm.maps import CHUNK, store_all
from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors, varying
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Walk, grain_of, lanes_for
from aicf_mlir.kernels.kernel import Kernel, Phase, collapse
from aicf_mlir.kernels.segments import EachKernel, SegmentedKernel

FEW = 4
"""The lanes for points after the last full vector; the last three points are computed one by one."""


def firsts_of(kernel: EachKernel) -> list[int]:
    """The number of the first item of each segment, and of all items; an item is up to CHUNK points of one segment."""
    return list(accumulate((-(-count // CHUNK) for count in kernel.counts), initial=0))


def each_phases(kernel: EachKernel) -> list[Phase]:
    """The one phase."""
    firsts = firsts_of(kernel)
    mean = sum(kernel.counts) // max(firsts[-1], 1)  # items of small segments cost less
    return [Phase(f"{kernel.symbol}_0", firsts[-1], grain_of(kernel.longest, mean))]


def each_module(kernel: EachKernel) -> str:
    """The text."""
    walk, phase = Function(), Function()
    if any(kernel.counts):
        _write_walk(walk, kernel.longest)
        _write_phase(phase, kernel)
    named = [f"ptr {'' if same else 'noalias '}%a{number}" for number, same in enumerate(_shared(kernel))]
    parameters = [*named, "ptr noalias readonly %libm", "i64 %begin", "i64 %end"]
    lines = [
        f"; {kernel.symbol}",
        *define(f"{kernel.symbol}_segment", parameters, walk),
        *define_phase(f"{kernel.symbol}_0", phase),
        *sorted(walk.declared | phase.declared),
        *ATTRIBUTES,
    ]
    return "\n".join([*lines, ""])


def _write_walk(function: Function, kernel: Kernel) -> None:
    """Write points `begin` to `end` of the segment at these addresses, of any size: wide vectors, narrow ones, single points."""
    place = LoopPosition.origin(kernel)
    axes = collapse(kernel, range(1))
    if not axes:  # one point
        store_all(Point(function, kernel, place), [])
        return
    (axis,) = axes
    point = Point(function, kernel, place)
    begin = "%begin"
    for lanes in dict.fromkeys((lanes_for(kernel, axis.size), FEW, 1)):
        walk = Walk(point, axis, varying(kernel, axis), kernel.body.results, lanes)
        end = "%end"
        if lanes > 1:
            left = function.new(f"sub nuw nsw i64 %end, {begin}")
            end = function.add(begin, function.new(f"and i64 {left}, {-lanes}"))

        def vector(index: str, carried: list[Value], walk: Walk = walk) -> list[Value]:
            walk.at(index, store_all)
            return carried

        function.loop(begin, end, lanes, [], vector)
        begin = end


def _write_phase(function: Function, kernel: EachKernel) -> None:
    """Write the segments that have items from `begin` to `end`, each with its addresses."""
    libm = libm_of(function, kernel)

    def call(number: int, begin: str, end: str) -> None:
        named = [address(function, at) for at in kernel.addresses(number)]
        start, stop = (function.multiply(item, CHUNK) for item in (begin, end))
        arguments = [f"ptr {name}" for name in (*named, libm)]
        arguments += [f"i64 {start}", f"i64 {function.smaller(stop, kernel.counts[number])}"]
        function.emit(f"call void @{kernel.symbol}_segment({', '.join(arguments)})")

    each_segment(function, firsts_of(kernel), call)


def each_segment(function: Function, firsts: Sequence[int], act: Callable[[int, str, str], None]) -> None:
    """Call `act` on each segment that has items from `begin` to `end`, with its number and the range of its own items.

    `firsts` are the numbers of the first item of each segment, and of all items.
    """
    for number, (first, last) in enumerate(pairwise(firsts)):
        if first == last:
            continue
        begin = function.call("llvm.smax.i64", "i64", ("i64", "%begin"), ("i64", str(first)))
        end = function.smaller("%end", last)
        some = function.new(f"icmp slt i64 {begin}, {end}")
        function.lines += [f"  br i1 {some}, label %walk{number}, label %next{number}", f"walk{number}:"]
        act(number, *(function.new(f"sub nuw nsw i64 {item}, {first}") for item in (begin, end)))
        function.lines += [f"  br label %next{number}", f"next{number}:"]


def address(function: Function, number: int) -> str:
    """The address of this number in the array of all."""
    return function.new(f"load ptr, ptr {function.pointer('%operands', 'ptr', str(number))}")


def workspace_of(function: Function, kernel: SegmentedKernel) -> str:
    """The address of the workspace."""
    return address(function, len(kernel.operands) + len(kernel.results))


def libm_of(function: Function, kernel: SegmentedKernel) -> str:
    """The address of the table of functions, which follows the workspace."""
    return address(function, len(kernel.operands) + len(kernel.results) + 1)


def define(name: str, parameters: Sequence[str], function: Function) -> list[str]:
    """The lines of an inner function with these parameters."""
    head = f"define internal void @{name}({', '.join(parameters)}) #1 {{"
    return [head, "entry:", *function.top, *function.lines, "  ret void", "}"]


def define_phase(name: str, function: Function) -> list[str]:
    """The lines of the function of a phase."""
    head = f"define void @{name}(ptr %operands, i64 %begin, i64 %end) #0 {{"
    return [head, "entry:", *function.lines, "  ret void", "}"]


ATTRIBUTES = (
    'attributes #0 = { nounwind "no-builtins" }',
    'attributes #1 = { noinline nounwind "no-builtins" }',
)


def _shared(kernel: EachKernel) -> list[bool]:
    """For each tensor of a segment, True if a result of that segment may be in the place of an operand and the tensor is one of
    the two.
    """
    pairs = {pair for part in kernel.parts for pair in part.in_place}
    read = len(kernel.longest.operands)
    same = {number for result, operand in pairs for number in (read + result, operand)}
    return [number in same for number in range(len(tensors(kernel.longest)))]
