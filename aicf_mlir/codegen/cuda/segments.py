"""Maps over many tensors: the addresses are one argument, and each block finds its segment. A thread takes one vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    head,
    integer,
    pointer,
    tensors,
    varying,
    width,
)
from aicf_mlir.codegen.cuda.maps import THREADS, compute
from aicf_mlir.codegen.cuda.scalars import STORED
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.kernels.kernel import Axis, Code, Kernel, Phase, strides_along
from aicf_mlir.kernels.segments import EachKernel, SegmentedKernel

ADDRESSES = "const __grid_constant__ Addresses addresses"


def code(kernel: EachKernel) -> Code:
    """The text and its one launch."""
    one = kernel.longest
    axis = Axis((0,), max(2, *one.domain), tuple(strides_along(one, 0)))
    wide = width(one, [axis], 0, varying(one, [axis]))
    blocks = [-(-count // (THREADS * wide)) for count in kernel.counts]
    firsts = list(accumulate(blocks, initial=0))
    kind = integer(2 * max(kernel.counts))
    text = Text()
    declare_addresses(text, kernel)
    table(text, "unsigned first_block", firsts[:-1])
    table(text, f"{kind} points", kernel.counts)
    with text.block(head([ADDRESSES], kernel.symbol, THREADS)):
        begin(text)
        find_segment(text, kernel, "first_block")
        pointers(text, kernel, kernel.longest)
        text.add(f"const {kind} count = points[segment];", "constexpr int u = 0;")
        number = f"(blockIdx.x - first_block[segment]) * {THREADS}u + threadIdx.x"
        text.add(f"const {kind} c0 = static_cast<{kind}>({number}) * {wide};")
        with text.block(f"if (c0 + {wide} <= count)"):
            _points(text, one, Coordinates((axis,), ("c0",)), wide)
        if wide > 1:
            with text.block(f"else for ({kind} c = c0; c < count; ++c)"):
                _points(text, one, Coordinates((axis,), ("c",)), 1)
    return Code(str(text), (Phase(kernel.symbol, firsts[-1], threads=THREADS),), one_table=True)


def declare_addresses(text: Text, kernel: SegmentedKernel) -> None:
    """Declare the type of the one argument that holds all addresses."""
    text.add(f"struct Addresses {{ void* of[{len(kernel.operands) + len(kernel.results)}]; }};")


def find_segment(text: Text, kernel: SegmentedKernel, firsts: str) -> None:
    """Declare `segment`, that of this block, by the table of the first block of each: the last that starts here or before."""
    text.add("unsigned segment = 0;")
    with text.block(f"for (unsigned end = {kernel.segments}; end - segment > 1;)"):
        text.add("const unsigned middle = (segment + end) / 2;")
        text.add(f"if ({firsts}[middle] <= blockIdx.x) segment = middle; else end = middle;")


def table(text: Text, name: str, numbers: Sequence[int]) -> None:
    """Write a table with a number for each segment."""
    text.add(f"__constant__ const {name}[{len(numbers)}] = {{{', '.join(map(str, numbers))}}};")


def pointers(text: Text, kernel: SegmentedKernel, one: Kernel) -> None:
    """Declare the tensors of the segment by the names that the text of `one` has for them."""
    read, written = kernel.read, kernel.written
    for number, tensor in enumerate(tensors(one)):
        at = (
            f"segment * {read} + {number}"
            if number < read
            else f"{len(kernel.operands)} + segment * {written} + {number - read}"
        )
        const = "const " if number < read else ""
        type_ = f"{const}{STORED[tensor.element]}*"
        text.add(f"{type_} {pointer(one, number)} = static_cast<{type_}>(addresses.of[{at}]);")


def _points(text: Text, kernel: Kernel, place: Coordinates, count: int) -> None:
    """Write the results of `count` neighbours, all of which exist."""
    for number, tensor in enumerate(kernel.operands):
        neighbours = count if place.axes[0].strides[number] else 1
        text.add(f"Vec<{STORED[tensor.element]}, {neighbours}> x{number}[1];")
        fetch(text, kernel, place, number, count, f"x{number}[u]")
    compute(text, kernel, place, count)
