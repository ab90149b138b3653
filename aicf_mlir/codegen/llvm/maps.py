"""Maps: every point by itself, in one phase; the lanes run along the axis in which most operands are contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors, varying
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.tiles import SIDE, Tiles, TileWriter, tiles_of
from aicf_mlir.codegen.llvm.walk import FEWEST, LANES, Walk, grain_of, lanes_for
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, collapse, elements
from aicf_mlir.kernels.schedule_text import ScheduleText, expect, powers

CHUNK = 2048
"""Points of the inner axis that are one item."""
NAMES = ("chunk", "lanes", "tiles")
CHUNKS = range(7, 21)
"""The powers of two that a chunk may be."""


@dataclass(frozen=True)
class MapSchedule:
    """The division of a map."""

    inner: Axis
    """The axis that lanes run along."""
    outers: tuple[Axis, ...]
    chunk: int
    """Points of the inner axis that are one item."""
    lanes: int
    tiled: Tiles | None
    """Squares that are turned in registers, whose rows are the items."""

    @property
    def text(self) -> str:
        """What the kernel id says of it."""
        if self.tiled:
            return "map tiles=1"
        return str(ScheduleText("map", {"chunk": self.chunk, "lanes": self.lanes}))


def schedule(kernel: Kernel) -> MapSchedule:
    """The schedule that a map names, or else the one that is chosen for it."""
    axes = collapse(kernel, range(len(kernel.domain))) or [Axis((), 1, (1,) * len(tensors(kernel)))]
    inner = inner_axis(kernel, axes)
    outers = tuple(axis for axis in axes if axis is not inner)
    plan = MapSchedule(inner, outers, CHUNK, lanes_for(kernel, inner.size), tiles_of(kernel, inner, outers))
    if not (text := kernel.schedule):
        return plan
    found = ScheduleText.parse(text, {"map": NAMES})
    expect(text, "tiles", found["tiles"], range(1 + (plan.tiled is not None)), " for these tensors")
    if found["tiles"]:
        expect(text, "chunk", found["chunk"], [0], " beside tiles")
        expect(text, "lanes", found["lanes"], [0], " beside tiles")
        return plan
    expect(text, "chunk", found["chunk"], [1 << n for n in CHUNKS])
    expect(text, "lanes", found["lanes"], list(powers(LANES, FEWEST)))
    return replace(plan, chunk=found["chunk"], lanes=found["lanes"], tiled=None)


def candidates(kernel: Kernel) -> Iterator[MapSchedule]:
    """The schedule that is chosen, then others."""
    first = schedule(replace(kernel, schedule=""))
    yield first
    for chunk, lanes in product((512, 2048, 8192), powers(LANES, FEWEST)):
        plan = replace(first, chunk=chunk, lanes=lanes, tiled=None)
        if plan != first:
            yield plan


def inner_axis(kernel: Kernel, axes: list[Axis]) -> Axis:
    """The axis along which most tensors are contiguous, results before operands; the last one of equals."""
    first = len(kernel.operands)

    def score(axis: Axis) -> tuple[int, int, int]:
        results = sum(stride == 1 for stride in axis.strides[first:])
        operands = sum(stride in (0, 1) for stride in axis.strides[:first])
        return min(axis.size, 8) * results, operands, axes.index(axis)

    return max(axes, key=score)


def map_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    """The one phase of a map."""
    plan, function = schedule(kernel), Function()
    inner, outers, tiles = plan.inner, list(plan.outers), plan.tiled
    if tiles is None:
        items = prod(axis.size for axis in outers) * -(-inner.size // plan.chunk)
        points = min(inner.size, plan.chunk)
    else:
        others = [axis for axis in outers if axis is not tiles.axis]
        items = prod(axis.size for axis in others) * -(-tiles.axis.size // SIDE)
        points = inner.size * SIDE
    if not elements(kernel.domain):
        items = 0
    elif tiles is None:
        _write(function, kernel, plan)
    else:
        _write_tiles(function, kernel, inner, outers, tiles)
    name = f"{kernel.symbol}_0"
    return [(Phase(name, items, grain_of(kernel, points)), function)]


def store_all(point: Point, carried: list[Value]) -> list[Value]:
    """Write every result at a point, after all of its operands have been read: a result may share memory with an operand."""
    point.evaluate(point.kernel.body.results)
    for number in range(len(point.kernel.results)):
        point.store(number)
    return carried


def _write_tiles(function: Function, kernel: Kernel, inner: Axis, outers: list[Axis], tiles: Tiles) -> None:
    others = [axis for axis in outers if axis is not tiles.axis]
    writer = TileWriter(function, kernel, inner, tiles, varying(kernel, inner), store_all)

    def item(index: str, carried: list[Value]) -> list[Value]:
        point, block = function.unravel(index, (0, -(-tiles.axis.size // SIDE)))
        at = function.unravel(point, [axis.size for axis in others])
        writer.item(LoopPosition.origin(kernel).moved(function, kernel, others, at), block)
        return carried

    function.loop("%begin", "%end", 1, [], item)


def _write(function: Function, kernel: Kernel, plan: MapSchedule) -> None:
    inner, outers, lanes, size = plan.inner, plan.outers, plan.lanes, plan.chunk
    varies = varying(kernel, inner)
    origin = LoopPosition.origin(kernel)
    results = kernel.body.results

    def along(place: LoopPosition, begin: str, end: str) -> None:
        walk = Walk(Point(function, kernel, place), inner, varies, results, lanes)
        walk.run(begin, end, [], store_all)

    if not outers:
        end = function.smaller(function.multiply("%end", size), inner.size)
        along(origin, function.multiply("%begin", size), end)
        return
    chunks = -(-inner.size // size)

    def item(index: str, carried: list[Value]) -> list[Value]:
        chunk, point = "0", index
        if chunks > 1:
            point, chunk = function.unravel(index, (0, chunks))
        at = function.unravel(point, [axis.size for axis in outers])
        begin = function.multiply(chunk, size)
        end = str(inner.size)
        if chunks > 1:
            end = function.smaller(function.add(begin, size), inner.size)
        along(origin.moved(function, kernel, outers, at), begin, end)
        return carried

    function.loop("%begin", "%end", 1, [], item)
