"""Images of few channels, of 16 bits, for a library that moves eight channels at once.

A convolution with a stride is one without over images whose channels are all elements of a cell of stride x stride: the first
layer of a ResNet has 16 channels so, in the place of 3. Channels that are missing are added, of the images and of the results,
and are 0; those of results are cut off again. It is the same sum in another order, for the images and for the weights; gradients
are put back.

So is the gradient of small images of any channels, where windows cut them into whole cells (`is_cut`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.convolutions import Convolved, ConvolvingOp
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.tensor_op import shape_of

EVEN = 8
"""Channels of 16 bits that the library moves at once. It would copy images of fewer to add those that are missing, and writes
results of fewer one by one."""
MOST = 1024
"""Channels of a cell."""
SMALL = 1 << 20
"""Elements of a gradient in cells: to copy more back takes longer than the library's kernels for strides do. On an H200
32 x 20 x 20 x 32 of them take 7 microseconds in the place of 17, 64 x 32 x 32 x 32 take 17 in the place of 15."""

Ints = tuple[int, ...]


class Form(NamedTuple):
    """How [N, spatial, C], images or weights, becomes a tensor of cells."""

    low: Ints
    whole: Ints
    """The spatial sizes with what is added in front and behind, multiples of the cell."""
    cell: Ints
    channels: int
    """With those that are added."""
    first: int
    """Images, or filters with those that are added."""

    @property
    def counts(self) -> Ints:
        """The spatial sizes in cells."""
        return tuple(size // step for size, step in zip(self.whole, self.cell, strict=True))

    def of(self, emitter: Emitter, x: SSAValue) -> SSAValue:
        """The cells of x, their elements as channels."""
        n, rank = self.first, len(self.cell)
        x = padded(emitter, x, (0, *self.low, 0), (n, *self.whole, self.channels))
        if max(self.cell) == 1:
            return x
        cut = [each for pair in zip(self.counts, self.cell, strict=True) for each in pair]
        x = emitter.emit(nn.ReshapeOp(x, (n, *cut, self.channels)))
        order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
        x = emitter.emit(nn.TransposeOp(x, order))
        return emitter.emit(nn.ReshapeOp(x, (n, *self.counts, math.prod(self.cell) * self.channels)))

    def back(self, emitter: Emitter, x: SSAValue, shape: Ints) -> SSAValue:
        """What `of` makes these cells of, of this shape."""
        n, rank = self.first, len(self.cell)
        if max(self.cell) > 1:
            x = emitter.emit(nn.ReshapeOp(x, (n, *self.counts, *self.cell, self.channels)))
            pairs = zip(range(1, rank + 1), range(rank + 1, 2 * rank + 1), strict=True)
            order = (0, *(d for pair in pairs for d in pair), 2 * rank + 1)
            x = emitter.emit(nn.TransposeOp(x, order))
            x = emitter.emit(nn.ReshapeOp(x, (n, *self.whole, self.channels)))
        x = padded(emitter, x, (0, *(-size for size in self.low), 0), (n, *shape[1:-1], self.channels))
        return cut(emitter, cut(emitter, x, 0, shape[0]), rank + 1, shape[-1])


class FewChannels:
    """Convolves in that way; keeps what it has made of images and weights."""

    def __init__(self) -> None:
        self._made: dict[tuple[SSAValue, Form], SSAValue] = {}

    @staticmethod
    def wanted(op: ConvolvingOp, a: SSAValue, b: SSAValue) -> bool:
        """True if images or results have channels that the library cannot move at once, or are better in cells; a and b have
        their channels last.
        """
        if isinstance(op, nn.ConvolutionInputGradOp) and is_cut(op.size.get_values(), a, b, op.convolved):
            return True
        weights = isinstance(op, nn.ConvolutionWeightGradOp)
        filters, channels = (
            (shape_of(b)[-1], shape_of(a)[-1]) if weights else shape_of(b)[:: len(shape_of(b)) - 1]
        )
        return op.convolved.groups == 1 and (channels % EVEN != 0 or filters % EVEN != 0)

    def convolve(
        self,
        emitter: Emitter,
        op: ConvolvingOp,
        a: SSAValue,
        b: SSAValue,
        of: Convolved,
        bias: SSAValue | None = None,
    ) -> SSAValue:
        """The result of `op` on a and b, whose channels are last; with the bias of a convolution."""
        size = op.size.get_values()
        match op:
            case nn.ConvolutionOp():
                form = forms(shape_of(a), shape_of(b), size, of)
                images, weights = self._cells(emitter, a, form.images), self._cells(emitter, b, form.weights)
                if bias is not None:
                    bias = padded(emitter, bias, (0,), (form.results.channels,))
                made = emitter.emit(nn.ConvolutionOp(images, weights, form.inner, size, bias))
                return form.results.back(emitter, made, (shape_of(a)[0], *size, shape_of(b)[0]))
            case nn.ConvolutionInputGradOp():
                x = (shape_of(a)[0], *size, shape_of(b)[-1])
                form = forms(x, shape_of(b), shape_of(a)[1:-1], of, is_cut(size, a, b, of))
                dy, weights = self._cells(emitter, a, form.results), self._cells(emitter, b, form.weights)
                made = emitter.emit(nn.ConvolutionInputGradOp(dy, weights, form.inner, form.images.counts))
                return form.images.back(emitter, made, x)
            case _:
                w = (shape_of(b)[-1], *size, shape_of(a)[-1])
                form = forms(shape_of(a), w, shape_of(b)[1:-1], of)
                images, dy = self._cells(emitter, a, form.images), self._cells(emitter, b, form.results)
                made = emitter.emit(nn.ConvolutionWeightGradOp(images, dy, form.inner, form.weights.counts))
                return form.weights.back(emitter, made, w)

    def _cells(self, emitter: Emitter, value: SSAValue, form: Form) -> SSAValue:
        if (value, form) not in self._made:
            self._made[value, form] = form.of(emitter, value)
        return self._made[value, form]


class Forms(NamedTuple):
    """How images, weights and results become cells, and how those are convolved."""

    images: Form
    weights: Form
    results: Form
    inner: Convolved


def forms(x: Ints, w: Ints, out: Sequence[int], of: Convolved, cells: bool = False) -> Forms:
    """The forms of x [N, spatial, C], w [F, kernel, C] and a result of the spatial sizes `out`; with `cells` of any channels."""
    (n, *spatial, channels), (filters, *kernel, _) = x, w
    cell = of.stride
    whole = channels % EVEN == 0 and not cells
    if whole or max(of.dilation) > 1 or math.prod(cell) * channels > MOST:
        cell = (1,) * len(spatial)
    even = next(more for more in range(channels, channels + EVEN) if more * math.prod(cell) % EVEN == 0)
    outputs = -(-filters // EVEN) * EVEN
    ones, zeros = (1,) * len(cell), (0,) * len(cell)
    results = Form(zeros, tuple(out), ones, outputs, n)
    if max(cell) == 1:
        images = Form(zeros, tuple(spatial), cell, even, n)
        return Forms(images, Form(zeros, tuple(kernel), cell, even, outputs), results, of)
    reach = tuple(-(-k // step) for k, step in zip(kernel, cell, strict=True))
    whole = tuple((o - 1 + r) * step for o, r, step in zip(out, reach, cell, strict=True))
    rows = tuple(r * step for r, step in zip(reach, cell, strict=True))
    inner = of._replace(stride=ones, low=zeros)
    return Forms(Form(of.low, whole, cell, even, n), Form(zeros, rows, cell, even, outputs), results, inner)


def is_cut(size: Sequence[int], dy: SSAValue, w: SSAValue, of: Convolved) -> bool:
    """True if the windows of small images of these sizes, in `dy` [N, windows, F] by w [F, kernel, C], cut them into whole cells:
    each begins with one, and has whole ones.
    """
    kernel, channels = shape_of(w)[1:-1], shape_of(w)[-1]
    if shape_of(dy)[0] * math.prod(size) * channels > SMALL:
        return False
    each = zip(size, kernel, shape_of(dy)[1:-1], of.stride, strict=True)
    return (
        max(of.stride) > 1 == max(of.dilation) == of.groups
        and not any(of.low)
        and math.prod(of.stride) * channels <= MOST
        and all(k % step == 0 and whole == (windows - 1) * step + k for whole, k, windows, step in each)
    )


def padded(emitter: Emitter, x: SSAValue, low: Sequence[int], wanted: Sequence[int]) -> SSAValue:
    """X with `low` elements that are 0 in front, and behind until it has the sizes `wanted`; cut where they are below 0."""
    high = [size - own - front for size, own, front in zip(wanted, shape_of(x), low, strict=True)]
    return emitter.emit(nn.PadOp(x, low, high)) if any(low) or any(high) else x


def cut(emitter: Emitter, x: SSAValue, dim: int, size: int) -> SSAValue:
    """The first elements of x along a dimension: a view, where a cut of `padded` is a copy."""
    whole = shape_of(x)[dim]
    return x if whole == size else emitter.builder.insert(nn.SplitOp(x, dim, (size, whole - size))).results[0]
