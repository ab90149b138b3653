"""Maps that read some operands across their rows: squares of 16 are turned in registers first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aicf_mlir.codegen.llvm import memory
from aicf_mlir.codegen.llvm.memory import STORED
from aicf_mlir.codegen.llvm.point import LoopPosition, Point
from aicf_mlir.codegen.llvm.text import Function, Value
from aicf_mlir.codegen.llvm.walk import Act, Walk
from aicf_mlir.ir.body import is_table
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.kernels.kernel import Axis, Kernel

SIDE = 16
"""The side of a square: a line of the cache in f32."""


@dataclass(frozen=True)
class Tiles:
    """The axis across, and the operands that are contiguous along it."""

    axis: Axis
    operands: tuple[int, ...]


def tiles_of(kernel: Kernel, inner: Axis, outers: Sequence[Axis]) -> Tiles | None:
    """The axis other than `inner` along which most of the operands not contiguous along `inner` are; None if there is none."""
    found: list[Tiles] = []
    for axis in outers:
        across = tuple(
            number
            for number, type_ in enumerate(kernel.body.args)
            if not is_table(type_) and axis.strides[number] == 1 and inner.strides[number] not in (0, 1)
        )
        if across and axis.size >= SIDE <= inner.size:
            found.append(Tiles(axis, across))
    return max(found, key=lambda tiles: len(tiles.operands), default=None)


def turned(function: Function, rows: Sequence[str], kind: str) -> list[str]:
    """The columns of a square of vectors: at each step blocks of half the size change places."""
    vector = f"<{SIDE} x {kind}>"

    def mixed(one: str, other: str, pick: Callable[[int], int]) -> str:
        lanes = ", ".join(f"i32 {pick(lane)}" for lane in range(SIDE))
        return function.new(f"shufflevector {vector} {one}, {vector} {other}, <{SIDE} x i32> <{lanes}>")

    found, step = list(rows), SIDE // 2
    while step:
        for i in (i for i in range(SIDE) if not i & step):
            upper, lower = found[i], found[i + step]

            def stay(lane: int, step: int = step) -> int:
                return SIDE + lane - step if lane & step else lane

            def move(lane: int, step: int = step) -> int:
                return SIDE + lane if lane & step else lane + step

            found[i], found[i + step] = mixed(upper, lower, stay), mixed(upper, lower, move)
        step //= 2
    return found


class TileWriter:
    """Writes one item: up to 16 rows, and all of the inner axis."""

    def __init__(
        self, function: Function, kernel: Kernel, inner: Axis, tiles: Tiles, varies: Sequence[bool], act: Act
    ) -> None:
        self.function, self.kernel, self.inner, self.tiles = function, kernel, inner, tiles
        self.varies, self.act = varies, act
        self.buffers = {
            number: function.stack(STORED[kernel.operands[number].element], SIDE * SIDE)
            for number in tiles.operands
        }

    def item(self, place: LoopPosition, block: str) -> None:
        """Write the rows of block number `block` along the axis across, from `place` on."""
        function, axis = self.function, self.tiles.axis
        whole = self.inner.size - self.inner.size % SIDE
        first = function.multiply(block, SIDE)
        last = function.smaller(function.add(first, SIDE), axis.size)
        squares = str(whole)
        if axis.size % SIDE:  # the last block has fewer rows, which are read one by one
            full = function.new(f"icmp slt i64 {block}, {axis.size // SIDE}")
            squares = function.new(f"select i1 {full}, i64 {whole}, i64 0")

        def square(index: str, carried: list[Value]) -> list[Value]:
            for number in self.tiles.operands:
                self._turn(place, number, first, index)
            return function.loop(
                "0", str(SIDE), 1, carried, lambda row, _: self._row(place, first, row, index)
            )

        function.loop("0", squares, SIDE, [], square)
        if axis.size % SIDE == 0 and self.inner.size % SIDE == 0:
            return

        def rest(row: str, carried: list[Value]) -> Sequence[Value]:
            walk = self._walk(place, row)
            return walk.run(squares, str(self.inner.size), carried, self.act)

        function.loop(first, last, 1, [], rest)

    def _walk(self, place: LoopPosition, row: str, buffer_row: str | None = None) -> Walk:
        moved = place.moved(self.function, self.kernel, [self.tiles.axis], [row])

        def given(point: Point) -> None:
            assert buffer_row is not None
            for number, buffer in self.buffers.items():
                element = self.kernel.operands[number].element
                offset = self.function.multiply(buffer_row, SIDE)
                pointer = self.function.pointer(buffer, STORED[element], offset)
                point.known[number] = memory.load(self.function, pointer, element, SIDE)

        outer = Point(self.function, self.kernel, moved)
        results = self.kernel.body.results
        if buffer_row is None:
            return Walk(outer, self.inner, self.varies, results, SIDE)
        return Walk(outer, self.inner, self.varies, results, SIDE, given=(self.tiles.operands, given))

    def _row(self, place: LoopPosition, first: str, row: str, index: str) -> Sequence[Value]:
        walk = self._walk(place, self.function.add(first, row), row)
        return walk.at(index, self.act)

    def _turn(self, place: LoopPosition, number: int, first: str, index: str) -> None:
        """Write a square of an operand, transposed, to its buffer: rows as the results have them."""
        function, element = self.function, self.kernel.operands[number].element
        kind, align = STORED[element], byte_size(element, ())
        vector, stride = f"<{SIDE} x {kind}>", self.inner.strides[number]
        start = function.add(function.multiply(index, stride), first)
        corner = function.pointer(place.pointers[number], kind, start)
        rows = [
            function.new(
                f"load {vector}, ptr {function.pointer(corner, kind, str(i * stride))}, align {align}"
            )
            for i in range(SIDE)
        ]
        for i, row in enumerate(turned(function, rows, kind)):
            pointer = function.pointer(self.buffers[number], kind, str(i * SIDE))
            function.emit(f"store {vector} {row}, ptr {pointer}, align {align}")
