"""A map: every thread takes a few vectors of neighbouring points; all its reads are under way before the first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aicf_mlir.codegen.cuda.access import (
    Coordinates,
    begin,
    fetch,
    find,
    index_of,
    integer,
    put,
    reach,
    signature,
    size_of,
    tensors,
    varying,
    width,
)
from aicf_mlir.codegen.cuda.scalars import STORED, stored
from aicf_mlir.codegen.cuda.text import Scope, Text
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Axis, Code, Kernel, Phase, collapse, elements

THREADS = 128
IN_FLIGHT = 64
"""Bytes that a thread reads ahead, at most."""
RESIDENT = 1024
"""The threads of a multiprocessor that have registers for reads ahead, if memory limits a map."""
MEMORY = 8
"""The bytes of a point from which on memory limits a map; below, arithmetic wants as many threads as possible."""


SECTOR = 32
"""Bytes of memory that are read at once, at least."""


@dataclass(frozen=True)
class MapSchedule:
    """The division of a map."""

    axes: tuple[Axis, ...]
    width: int
    """Neighbours that a thread takes at once."""
    vectors: int
    """The number of vectors that a thread takes."""
    threads: int = THREADS
    """The threads of a block."""
    resident: int = 0
    """Blocks that a multiprocessor has at the same time, at least."""

    @property
    def count(self) -> int:
        """Vectors of the whole domain."""
        size = 1
        for axis in self.axes:
            size *= axis.size
        return size // self.width

    @property
    def rest(self) -> int:
        """The points after the last vector, in a domain of one axis."""
        return self.axes[-1].size % self.width if self.axes else 0


def schedule(kernel: Kernel) -> MapSchedule:
    """The schedule of a map, with axes in the order in which the first result is stored in memory."""
    strides = kernel.results[0].strides if kernel.results else ()
    dims = sorted(range(len(kernel.domain)), key=lambda dim: -abs(strides[dim]) if strides else dim)
    axes = collapse(kernel, dims)
    wide = width(kernel, axes, len(axes) - 1, varying(kernel, axes)) if axes else 1
    read = sum(
        size_of(tensor.element) * wide
        for tensor, type_ in zip(kernel.operands, kernel.body.args, strict=True)
        if not is_table(type_)
    )
    vectors = 4
    filled = 8 * THREADS * chip_of(kernel.target).processors  # with fewer threads, each takes one vector only
    while vectors > 1 and (vectors * read > IN_FLIGHT or elements(kernel.domain) < filled * wide * vectors):
        vectors //= 2
    moved = sum(size_of(tensors(kernel)[number].element) for number in varying(kernel, axes))
    waits = vectors > 1 and moved >= MEMORY
    walked = across(kernel, axes, wide)
    return MapSchedule(tuple(walked), wide, vectors, resident=RESIDENT // THREADS if waits else 0)


def across(kernel: Kernel, axes: list[Axis], wide: int) -> list[Axis]:
    """The axes for a tensor that lies across, whose neighbours are along an axis that is not the last: as many of them as fill
    a sector come to neighbouring threads, which then take the next vector of the last axis.
    """
    if len(axes) < 2 or kernel.body.dims or axes[-1].size % wide:
        return axes
    *outer, last = axes
    for number in varying(kernel, axes):
        side = next((axis for axis in outer if axis.strides[number] == 1), None)
        count = SECTOR // size_of(tensors(kernel)[number].element)
        if side is None or last.strides[number] in (0, 1) or side.size % count:
            continue
        at = outer.index(side)
        outer[at] = parted(side, side.size // count, count)
        return [*outer, parted(last, last.size // wide, wide), parted(side, count, 1), parted(last, wide, 1)]
    return axes


def parted(axis: Axis, size: int, step: int) -> Axis:
    """`size` points of an axis, `step` apart."""
    return Axis(axis.dims, size, tuple(stride * step for stride in axis.strides))


def code(kernel: Kernel, plan: MapSchedule | None = None) -> Code:
    """The text of a map and its one launch, by its own schedule or another one."""
    plan = plan or schedule(kernel)
    text = Text()
    with text.block(signature(kernel, kernel.id, plan.threads, plan.resident)):
        begin(text)
        _vectors(text, kernel, plan)
        if plan.rest:
            _rest(text, kernel, plan)
    per_block = plan.threads * plan.vectors
    threads = max(plan.count, plan.rest)
    blocks = -(-threads // per_block) if elements(kernel.domain) else 0
    return Code(str(text), (Phase(kernel.id, blocks, threads=plan.threads),))


def _vectors(text: Text, kernel: Kernel, plan: MapSchedule) -> None:
    """Emit all vectors of a thread: the reads of all, then the arithmetic and writes of each."""
    per_block = plan.threads * plan.vectors
    small = plan.count < 1 << 31
    counter = "unsigned" if small else "unsigned long long"
    text.add(f"const {counter} first = static_cast<{counter}>(blockIdx.x) * {per_block}u + threadIdx.x;")
    streams = [n for n in range(len(kernel.operands)) if not is_table(kernel.body.args[n])]
    for number in streams:
        element = STORED[kernel.operands[number].element]
        count = plan.width if plan.axes and plan.axes[-1].strides[number] else 1
        text.add(f"Vec<{element}, {count}> x{number}[{plan.vectors}];")

    def each(work: Callable[[Coordinates], None]) -> None:
        with text.each("u", plan.vectors):
            text.add(f"const {counter} i = first + u * {plan.threads}u;")
            ragged = not plan.count or plan.count % per_block
            with text.block(f"if (i < {plan.count}u{'' if small else 'll'})" if ragged else ""):
                kind = integer(max(reach(plan.axes), elements(kernel.domain)))
                work(find(text, plan.axes, "i", "c", kind, plan.width))

    def read(place: Coordinates) -> None:
        for number in streams:
            fetch(text, kernel, place, number, plan.width, f"x{number}[u]")

    def write(place: Coordinates) -> None:
        compute(text, kernel, place, plan.width)

    each(read)
    each(write)


def compute(
    text: Text,
    kernel: Kernel,
    place: Coordinates,
    count: int,
    given: Mapping[int, str] | None = None,
) -> None:
    """Compute and write the results of `count` neighbours at `place`, from the vectors `x0[u]`, `x1[u]`, ….

    `given` are the widened elements `j` of operands that are no such vectors.
    """
    body, known = kernel.body, given or {}
    for number, tensor in enumerate(kernel.results):
        text.add(f"Vec<{STORED[tensor.element]}, {count}> y{number};")
    with text.each("j", count):

        def element(number: int) -> str:
            if number in known:
                return known[number]
            single = not place.axes or not place.axes[-1].strides[number]
            return f"element_of(x{number}[u], {'0' if single else 'j'})"

        def index(dim: int) -> str:
            return index_of(dim, "j" if count > 1 else "", place)

        scope = Scope(text, kernel, element, index)
        scope.need(body.results)
        for number, value in enumerate(body.results):
            text.add(f"y{number}.at[j] = {stored(kernel.results[number].element, scope[value])};")
    for number in range(len(kernel.results)):
        put(text, kernel, place, number, count)


def _rest(text: Text, kernel: Kernel, plan: MapSchedule) -> None:
    """Write the last points of a domain of one axis, one a thread of the first block."""
    with text.block(f"if (blockIdx.x == 0 && threadIdx.x < {plan.rest})"):
        kind = integer(max(reach(plan.axes), elements(kernel.domain)))
        start = plan.axes[-1].size - plan.rest
        text.add(f"const {kind} c = {start} + static_cast<{kind}>(threadIdx.x);", "constexpr int u = 0;")
        place = Coordinates(plan.axes, (*("0" for _ in plan.axes[1:]), "c"))
        for number, tensor in enumerate(tensors(kernel)[: len(kernel.operands)]):
            if not is_table(kernel.body.args[number]):
                text.add(f"Vec<{STORED[tensor.element]}, 1> x{number}[1];")
                fetch(text, kernel, place, number, 1, f"x{number}[u]")
        compute(text, kernel, place, 1)
