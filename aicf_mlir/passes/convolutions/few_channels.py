"""Images of few channels, of 16 bits, for a library that moves eight channels at once.

A convolution with a stride is one without over images whose channels are all elements of a cell of stride x stride: the first
layer of a ResNet has 16 channels so, in the place of 3. Channels that are missing are added, and are 0. It is the same sum in
another order, for the images and for the weights; gradients are put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.convolutions import Convolved, ConvolvingOp
from aicf_mlir.ir.tensor_op import shape_of

EVEN = 8
"""Channels of 16 bits that the library moves at once; it would copy images of fewer to add those that are missing."""
MOST = 1024
"""Channels of a cell."""

Insert = Callable[[ValueOp], SSAValue]
Ints = tuple[int, ...]


class Form(NamedTuple):
    """How [N, spatial, C], images or weights, becomes a tensor of cells."""

    low: Ints
    whole: Ints
    """The spatial sizes with what is added in front and behind, multiples of the cell."""
    cell: Ints
    channels: int
    """With those that are added."""

    def of(self, insert: Insert, x: SSAValue) -> SSAValue:
        """The cells of x, their elements as channels."""
        n, *spatial, _own = shape_of(x)
        rank = len(spatial)
        x = padded(insert, x, (0, *self.low, 0), (n, *self.whole, self.channels))
        if max(self.cell) == 1:
            return x
        counts = [size // step for size, step in zip(self.whole, self.cell, strict=True)]
        cut = [each for pair in zip(counts, self.cell, strict=True) for each in pair]
        x = insert(nn.ReshapeOp(x, (n, *cut, self.channels)))
        order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
        x = insert(nn.TransposeOp(x, order))
        return insert(nn.ReshapeOp(x, (n, *counts, math.prod(self.cell) * self.channels)))

    def back(self, insert: Insert, x: SSAValue, shape: Ints) -> SSAValue:
        """What `of` makes these cells of, of this shape."""
        n, *counts, _ = shape_of(x)
        rank = len(counts)
        if max(self.cell) > 1:
            x = insert(nn.ReshapeOp(x, (n, *counts, *self.cell, self.channels)))
            pairs = zip(range(1, rank + 1), range(rank + 1, 2 * rank + 1), strict=True)
            order = (0, *(d for pair in pairs for d in pair), 2 * rank + 1)
            x = insert(nn.TransposeOp(x, order))
            x = insert(nn.ReshapeOp(x, (n, *self.whole, self.channels)))
        return padded(insert, x, (0, *(-size for size in self.low), 0), shape)


class FewChannels:
    """Convolves in that way; keeps what it has made of images and weights."""

    def __init__(self) -> None:
        self._made: dict[tuple[SSAValue, Form], SSAValue] = {}

    @staticmethod
    def wanted(channels: int, of: Convolved) -> bool:
        """True if the library would have to add channels."""
        return channels % EVEN != 0 and of.groups == 1

    def convolve(self, insert: Insert, op: ConvolvingOp, a: SSAValue, b: SSAValue, of: Convolved) -> SSAValue:
        """The result of `op` on a and b, whose channels are last."""
        size = op.size.get_values()
        match op:
            case nn.ConvolutionOp():
                x, w = shape_of(a), shape_of(b)
                images, weights, inner = forms(x, w, size, of)
                made = nn.ConvolutionOp(
                    self._cells(insert, a, images), self._cells(insert, b, weights), inner, size
                )
                return insert(made)
            case nn.ConvolutionInputGradOp():
                dy, w = shape_of(a), shape_of(b)
                x = (dy[0], *size, w[-1])
                images, weights, inner = forms(x, w, dy[1:-1], of)
                cells = self._cells(insert, b, weights)
                counts = [whole // step for whole, step in zip(images.whole, images.cell, strict=True)]
                return images.back(insert, insert(nn.ConvolutionInputGradOp(a, cells, inner, counts)), x)
            case _:
                x, dy = shape_of(a), shape_of(b)
                w = (dy[-1], *size, x[-1])
                images, weights, inner = forms(x, w, dy[1:-1], of)
                cells = self._cells(insert, a, images)
                counts = [whole // step for whole, step in zip(weights.whole, weights.cell, strict=True)]
                return weights.back(insert, insert(nn.ConvolutionWeightGradOp(cells, b, inner, counts)), w)

    def _cells(self, insert: Insert, value: SSAValue, form: Form) -> SSAValue:
        if (value, form) not in self._made:
            self._made[value, form] = form.of(insert, value)
        return self._made[value, form]


def forms(x: Ints, w: Ints, out: Sequence[int], of: Convolved) -> tuple[Form, Form, Convolved]:
    """Of images and of weights, and how they are convolved then."""
    channels, spatial, kernel = x[-1], x[1:-1], w[1:-1]
    cell = of.stride
    if max(of.dilation) > 1 or math.prod(cell) * channels > MOST:
        cell = (1,) * len(spatial)
    even = next(more for more in range(channels, channels + EVEN) if more * math.prod(cell) % EVEN == 0)
    if max(cell) == 1:
        nothing = (0,) * len(spatial)
        return Form(nothing, spatial, cell, even), Form(nothing, kernel, cell, even), of
    reach = tuple(-(-k // step) for k, step in zip(kernel, cell, strict=True))
    whole = tuple((o - 1 + r) * step for o, r, step in zip(out, reach, cell, strict=True))
    ones, zeros = (1,) * len(cell), (0,) * len(cell)
    weights = Form(zeros, tuple(r * step for r, step in zip(reach, cell, strict=True)), cell, even)
    return Form(of.low, whole, cell, even), weights, of._replace(stride=ones, low=zeros)


def padded(insert: Insert, x: SSAValue, low: Sequence[int], wanted: Sequence[int]) -> SSAValue:
    """X with `low` elements that are 0 in front, and behind until it has the sizes `wanted`; cut where they are below 0."""
    high = [size - own - front for size, own, front in zip(wanted, shape_of(x), low, strict=True)]
    return insert(nn.PadOp(x, low, high)) if any(low) or any(high) else x
