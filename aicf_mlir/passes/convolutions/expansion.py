"""A convolution as a product over its windows, which lie in memory; of one channel a group as a nest, weighed sums of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from xdsl.ir import Block, SSAValue
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.convolutions import Convolved, ConvolvingOp
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.dialects.nn.unfolded_windows import exchanged, folded, images_first, reshaped, tiles, unfolded
from aicf_mlir.dialects.nn.window_relation import Windows
from aicf_mlir.ir.tensor_op import shape_of

TILE, SHORTEST = 64, 256
"""The rows and columns of a tile of a product, and the terms of a part of an image, at least."""

Key = tuple["Block | None", SSAValue, Windows, tuple[int, ...]]


class Expansion:
    """Writes the convolutions of a module by other ops; those that read the same windows share them."""

    def __init__(self, nests: bool = False, tiles: int = 0) -> None:
        """With `nests` each is a weighed sum. With `tiles`, which are as many as fill a chip, gradients are products of images,
        which stay where they are.
        """
        self._unfolded: dict[Key, SSAValue] = {}
        self._nests, self._tiles = nests, tiles

    def of(self, op: ConvolvingOp) -> SSAValue:
        """The ops in front of `op` that compute its result."""
        return _Expanded(op, self._unfolded, self._nests, self._tiles).result()


class _Expanded:
    """One op. Tensors have their channels in front here."""

    def __init__(self, op: ConvolvingOp, kept: dict[Key, SSAValue], nests: bool, tiles: int):
        self._op, self._kept, self._nests, self._tiles = op, kept, nests, tiles
        self._emitter = Emitter(InsertPoint.before(op), op.location)
        self._convolved: Convolved = op.convolved

    def result(self) -> SSAValue:
        a, b = map(self._channels_first, self._op.factors)
        match self._op:
            case nn.ConvolutionOp():
                made = self._forward(a, b)
            case nn.ConvolutionInputGradOp():
                made = self._input_grad(a, b)
            case _:
                made = self._weight_grad(a, b)
        rank = len(shape_of(made))
        if isinstance(self._op, nn.ConvolutionOp) and self._op.bias is not None:
            made = with_bias(self._insert, made, self._op.bias)
        last = self._convolved.channels_last
        return self._insert(nn.TransposeOp(made, (0, *range(2, rank), 1))) if last else made

    def _insert(self, op: ValueOp) -> SSAValue:
        return self._emitter.emit(op)

    def _channels_first(self, x: SSAValue) -> SSAValue:
        rank = len(shape_of(x))
        last = self._convolved.channels_last
        return self._insert(nn.TransposeOp(x, (0, rank - 1, *range(1, rank - 1)))) if last else x

    def _forward(self, x: SSAValue, w: SSAValue) -> SSAValue:
        n = shape_of(x)[0]
        outputs, own, *kernel = shape_of(w)
        windows, size = self._convolved.windows(kernel), self._op.size.get_values()
        if self._is_nest(outputs, own):
            return self._insert(nn.WindowSumOp(x, w, windows, size))
        depth, columns = own * math.prod(kernel), n * math.prod(size)
        taken = self._taken(x, windows, size)
        found = self._product(
            self._matrices(w, outputs, depth), self._matrices(taken, depth * self._convolved.groups, columns)
        )
        return images_first(self._insert, reshaped(self._insert, found, (outputs, n, *size)))

    def _input_grad(self, dy: SSAValue, w: SSAValue) -> SSAValue:
        n, outputs, *spatial = shape_of(dy)
        own, kernel, groups = shape_of(w)[1], shape_of(w)[2:], self._convolved.groups
        windows, size = self._convolved.windows(kernel), self._op.size.get_values()
        if self._is_nest(outputs, own):
            weights = exchanged(self._insert, w, own * groups)
            return self._insert(nn.WindowSumOp(dy, weights, windows.transposed, size))
        depth, columns = own * math.prod(kernel), n * math.prod(spatial)
        if self._tiles:
            weights = reshaped(self._insert, w, (1, groups, outputs // groups, depth))
            weights = self._insert(nn.BroadcastToOp(weights, (n, *shape_of(weights)[1:])))
            elements = reshaped(self._insert, dy, (n, groups, outputs // groups, math.prod(spatial)))
            apart = self._product(weights, elements, trans_a=True)
            found = self._insert(nn.TransposeOp(apart, (1, 2, 0, 3)))
        else:
            elements = self._matrices(images_first(self._insert, dy), outputs, columns)
            found = self._product(self._matrices(w, outputs, depth), elements, trans_a=True)
        found = reshaped(self._insert, found, (own * groups, *kernel, n, *spatial))
        return folded(self._insert, found, windows, size)

    def _weight_grad(self, x: SSAValue, dy: SSAValue) -> SSAValue:
        n, channels, *_ = shape_of(x)
        outputs, spatial, groups = shape_of(dy)[1], shape_of(dy)[2:], self._convolved.groups
        kernel, own = self._op.size.get_values(), channels // groups
        windows = self._convolved.windows(kernel)
        if self._is_nest(outputs, own):
            return self._insert(nn.WindowProductOp(x, dy, windows, own))
        if self._tiles:
            return self._sum_of_images(x, dy)
        depth, columns = own * math.prod(kernel), n * math.prod(spatial)
        taken = self._taken(x, windows, spatial)
        elements = self._matrices(images_first(self._insert, dy), outputs, columns)
        found = self._product(elements, self._matrices(taken, depth * groups, columns), trans_b=True)
        return reshaped(self._insert, found, (outputs, own, *kernel))

    def _sum_of_images(self, x: SSAValue, dy: SSAValue) -> SSAValue:
        """The gradient of the weights as a product for each image, which are added: `dy` stays where it is.

        Where those are too few to fill a chip, one for each of several parts of an image.
        """
        n, channels, *spatial = shape_of(x)
        outputs, size, groups = shape_of(dy)[1], shape_of(dy)[2:], self._convolved.groups
        kernel, own = self._op.size.get_values(), channels // groups
        windows = self._convolved.windows(kernel)
        rows, columns, places = outputs // groups, own * math.prod(kernel), math.prod(size)
        if max(kernel) == 1 and tiles(windows, spatial, size):
            taken = self._insert(nn.ReshapeOp(x, (n, groups, columns, places)))
        else:
            apart = reshaped(self._insert, self._taken(x, windows, size), (groups, columns, n, places))
            taken = self._insert(nn.TransposeOp(apart, (2, 0, 1, 3)))
        elements = reshaped(self._insert, dy, (n, groups, rows, places))
        blocks = n * groups * -(-rows // TILE) * -(-columns // TILE)
        even = [parts for parts in range(1, max(places // SHORTEST, 1) + 1) if places % parts == 0]
        parts = next((parts for parts in even if parts * blocks >= self._tiles), even[-1])
        if parts > 1:
            cut = [
                reshaped(self._insert, each, (*shape_of(each)[:3], parts, places // parts))
                for each in (elements, taken)
            ]
            elements, taken = (self._insert(nn.TransposeOp(each, (0, 1, 3, 2, 4))) for each in cut)
        made = self._product(elements, taken, trans_b=True)
        total = self._insert(nn.SumOp(made, [0, 2] if parts > 1 else [0], keepdim=False))
        return reshaped(self._insert, total, (outputs, own, *kernel))

    def _is_nest(self, outputs: int, own: int) -> bool:
        """True where a product would have one row or column and windows take more memory than it computes, or where asked for."""
        return own > 0 and (self._nests or (own == 1 and (self._convolved.groups > 1 or outputs == 1)))

    def _taken(self, x: SSAValue, windows: Windows, size: Sequence[int]) -> SSAValue:
        key = (self._op.parent, x, windows, tuple(size))
        if key not in self._kept:
            self._kept[key] = unfolded(self._insert, x, windows, size)
        return self._kept[key]

    def _product(self, a: SSAValue, b: SSAValue, trans_a: bool = False, trans_b: bool = False) -> SSAValue:
        rounds = self._convolved.allow_tf32
        return self._insert(nn.MatmulOp(a, b, trans_a, trans_b, allow_tf32=rounds))

    def _matrices(self, x: SSAValue, rows: int, columns: int) -> SSAValue:
        """One matrix of so many rows, or one for each group."""
        groups = self._convolved.groups
        shape = (rows, columns) if groups == 1 else (groups, rows // groups, columns)
        return reshaped(self._insert, x, shape)


def with_bias(
    insert: Callable[[ValueOp], SSAValue], y: SSAValue, bias: SSAValue, channels_last: bool = False
) -> SSAValue:
    """The bias added to images, by an op of its own."""
    spatial = 0 if channels_last else len(shape_of(y)) - 2
    return insert(nn.AddOp(y, reshaped(insert, bias, (*shape_of(bias), *[1] * spatial))))
