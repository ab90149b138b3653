"""Maps: every point by itself. One phase; the lanes run along the axis that most operands lie along."""

from __future__ import annotations

from math import prod

from aicf_mlir.codegen.kernel import Axis, Kernel, Phase, collapse, elements
from aicf_mlir.codegen.llvm.point import Place, Point, tensors, varying
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Walk, grain_of, lanes_for

CHUNK = 2048
"""Points of the inner axis that are one item."""


def inner_axis(kernel: Kernel, axes: list[Axis]) -> Axis:
    """The axis along which most lies contiguous, results before operands; the last one of equals."""
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
    chunks = -(-inner.size // CHUNK)
    items = prod(axis.size for axis in outers) * chunks if elements(kernel.domain) else 0
    function = Function()
    if items:
        _write(function, kernel, inner, outers)
    name = f"{kernel.id}_0"
    points = min(inner.size, CHUNK)
    return [(Phase(name, items, grain_of(kernel, points)), function)]


def _write(function: Function, kernel: Kernel, inner: Axis, outers: list[Axis]) -> None:
    lanes = lanes_for(kernel, inner.size)
    varies = varying(kernel, inner)
    origin = Place.origin(kernel)
    results = kernel.body.results

    def act(point: Point, carried: list[Value]) -> list[Value]:
        for number in range(len(results)):
            point.store(number)
        return carried

    def along(place: Place, begin: str, end: str) -> None:
        walk = Walk(Point(function, kernel, place), inner, varies, results, lanes)
        walk.run(begin, end, [], act)

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
