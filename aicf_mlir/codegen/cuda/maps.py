"""A map: every thread takes a few vectors of neighbouring points; all its reads are under way before the first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

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
from aicf_mlir.codegen.cuda.table_runs import TableRuns
from aicf_mlir.codegen.cuda.text import Scope, Text
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.kernels.kernel import Axis, Code, Kernel, Phase, collapse, elements
from aicf_mlir.kernels.schedule_text import ScheduleText, expect, powers
from aicf_mlir.kernels.steps import lookups

THREADS = 128
IN_FLIGHT = 64
"""Bytes that a thread reads ahead, at most."""
RESIDENT = 1024
"""The threads of a multiprocessor that have registers for reads ahead, if memory limits a map."""
MEMORY = 8
"""The bytes of a point from which on memory limits a map; below, arithmetic wants as many threads as possible."""
SECTOR = 32
"""Bytes of memory that are read at once, at least."""
MOST_VECTORS = 8
MOST_THREADS = 1024


NAMES = ("width", "vectors", "threads", "resident", "across")


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
    across: int = 0
    """1 if neighbouring threads take the neighbours of a tensor that lies across."""

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

    @property
    def text(self) -> str:
        """What the kernel id says of it."""
        return str(ScheduleText("map", {name: getattr(self, name) for name in NAMES}))


def schedule(kernel: Kernel) -> MapSchedule:
    """The schedule that a map names, or else the one that is chosen for it."""
    return given(kernel, kernel.schedule) if kernel.schedule else chosen(kernel)


def axes_of(kernel: Kernel) -> tuple[list[Axis], int]:
    """The axes in the order in which the first result is stored in memory, and the neighbours that a thread can take at most."""
    strides = kernel.results[0].strides if kernel.results else ()
    dims = sorted(range(len(kernel.domain)), key=lambda dim: -abs(strides[dim]) if strides else dim)
    axes = collapse(kernel, dims)
    return axes, width(kernel, axes, len(axes) - 1, varying(kernel, axes)) if axes else 1


def chosen(kernel: Kernel) -> MapSchedule:
    """The schedule of a map by its chip."""
    axes, wide = axes_of(kernel)
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
    resident = RESIDENT // THREADS if waits else 0
    return MapSchedule(tuple(walked), wide, vectors, resident=resident, across=int(walked is not axes))


def given(kernel: Kernel, text: str) -> MapSchedule:
    """The schedule of this text; SelectionError where the map has none such."""
    found = ScheduleText.parse(text, {"map": NAMES})
    axes, wide = axes_of(kernel)
    expect(text, "width", found["width"], list(powers(wide)), " for these tensors")
    expect(text, "vectors", found["vectors"], list(powers(MOST_VECTORS)))
    expect(text, "threads", found["threads"], list(powers(MOST_THREADS, 32)))
    expect(text, "resident", found["resident"], range(2 * MOST_THREADS // found["threads"] + 1))
    walked = across(kernel, axes, found["width"]) if found["across"] else axes
    expect(text, "across", found["across"], range(1 + (walked is not axes)), " for these tensors")
    return MapSchedule(tuple(walked), *(found[name] for name in NAMES))


def candidates(kernel: Kernel) -> Iterator[MapSchedule]:
    """The schedule that is chosen, then others."""
    first = chosen(kernel)
    axes, wide = axes_of(kernel)
    yield first
    for size, lies in product(powers(wide), (0, 1)):
        walked = across(kernel, axes, size) if lies else axes
        if lies and walked is axes:
            continue
        for vectors, threads in product(powers(MOST_VECTORS // 2), powers(MOST_THREADS // 2, 64)):
            for resident in dict.fromkeys((0, RESIDENT // threads, 2 * MOST_THREADS // threads)):
                plan = MapSchedule(tuple(walked), size, vectors, threads, resident, lies)
                if plan != first:
                    yield plan


def across(kernel: Kernel, axes: list[Axis], wide: int) -> list[Axis]:
    """The axes for a tensor that lies across, whose neighbours are along an axis that is not the last: as many of them as fill
    a sector come to neighbouring threads, which then take the next vector of the last axis.
    """
    if len(axes) < 2 or axes[-1].size % wide:
        return axes
    *outer, last = axes
    for element, steps in reads(kernel, axes):
        *before, along = steps
        at = next((n for n, step in enumerate(before) if step in (1, -1)), None)
        count = SECTOR // size_of(element)
        if at is None or along in (0, 1, -1, None) or outer[at].size % count:
            continue
        side = outer[at]
        outer[at] = parted(side, side.size // count, count)
        return [*outer, parted(last, last.size // wide, wide), parted(side, count, 1), parted(last, wide, 1)]
    return axes


def reads(kernel: Kernel, axes: Sequence[Axis]) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """What makes up the traffic: the element type, and the step along each axis, of tensors that differ along all of them, and of
    places where the body reads a table.
    """
    for number in varying(kernel, axes):
        yield tensors(kernel)[number].element, tuple(axis.strides[number] for axis in axes)
    for line in zip(*(lookups(kernel, axis) for axis in axes), strict=True):
        (element, *_), steps = zip(*line, strict=True)
        yield element, steps


def parted(axis: Axis, size: int, step: int) -> Axis:
    """`size` points of an axis, `step` apart."""
    return Axis(axis.dims, size, tuple(stride * step for stride in axis.strides), step)


def code(kernel: Kernel, plan: MapSchedule) -> Code:
    """The text of a map and its one launch."""
    text = Text()
    with text.block(signature(kernel, kernel.symbol, plan.threads, plan.resident)):
        begin(text)
        _vectors(text, kernel, plan)
        if plan.rest:
            _rest(text, kernel, plan)
    per_block = plan.threads * plan.vectors
    threads = max(plan.count, plan.rest)
    blocks = -(-threads // per_block) if elements(kernel.domain) else 0
    return Code(str(text), (Phase(kernel.symbol, blocks, threads=plan.threads),))


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

    def element(number: int) -> str:
        if number in known:
            return known[number]
        single = not place.axes or not place.axes[-1].strides[number]
        return f"element_of(x{number}[u], {'0' if single else 'j'})"

    runs = TableRuns(kernel, place, count)
    shared = runs.read(text, element)
    with text.each("j", count):

        def index(dim: int) -> str:
            return index_of(dim, "j" if count > 1 else "", place)

        scope = Scope(text, kernel, element, index, shared)
        runs.take(text, scope)
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
