"""Maps: every point by itself, in one phase; the lanes run along the axis in which most operands are contiguous."""

from __future__ import annotations

from math import prod

from aicf_mlir.codegen.llvm.point import LoopPosition, Point, tensors, varying
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.tiles import SIDE, Tiles, TileWriter, tiles_of
from aicf_mlir.codegen.llvm.walk import Walk, grain_of, lanes_for
from aicf_mlir.kernels.kernel import Axis, Kernel, Phase, collapse, elements

CHUNK = 2048
"""Points of the inner axis that are one item."""


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
    axes = collapse(kernel, range(len(kernel.domain)))
    if not axes:
        axes = [Axis((), 1, (1,) * len(tensors(kernel)))]
    inner = inner_axis(kernel, axes)
    outers = [axis for axis in axes if axis is not inner]
    tiles = tiles_of(kernel, inner, outers)
    function = Function()
    if tiles is None:
        items = prod(axis.size for axis in outers) * -(-inner.size // CHUNK)
        points = min(inner.size, CHUNK)
    else:
        others = [axis for axis in outers if axis is not tiles.axis]
        items = prod(axis.size for axis in others) * -(-tiles.axis.size // SIDE)
        points = inner.size * SIDE
    if not elements(kernel.domain):
        items = 0
    elif tiles is None:
        _write(function, kernel, inner, outers)
    else:
        _write_tiles(function, kernel, inner, outers, tiles)
    name = f"{kernel.id}_0"
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


def _write(function: Function, kernel: Kernel, inner: Axis, outers: list[Axis]) -> None:
    lanes = lanes_for(kernel, inner.size)
    varies = varying(kernel, inner)
    origin = LoopPosition.origin(kernel)
    results = kernel.body.results

    def along(place: LoopPosition, begin: str, end: str) -> None:
        walk = Walk(Point(function, kernel, place), inner, varies, results, lanes)
        walk.run(begin, end, [], store_all)

    if not outers:
        end = function.smaller(function.multiply("%end", CHUNK), inner.size)
        along(origin, function.multiply("%begin", CHUNK), end)
        return
    chunks = -(-inner.size // CHUNK)

    def item(index: str, carried: list[Value]) -> list[Value]:
        chunk, point = "0", index
        if chunks > 1:
            point, chunk = function.unravel(index, (0, chunks))
        at = function.unravel(point, [axis.size for axis in outers])
        begin = function.multiply(chunk, CHUNK)
        end = str(inner.size)
        if chunks > 1:
            end = function.smaller(function.add(begin, CHUNK), inner.size)
        along(origin.moved(function, kernel, outers, at), begin, end)
        return carried

    function.loop("%begin", "%end", 1, [], item)
