"""Samples of convolutions: one to three dimensions, strides, dilations, groups, padding on one side, both layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn import Convolved
from samples.sample import Sample, tensors

Ints = tuple[int, ...]


class Numbers(NamedTuple):
    """x [N, C, spatial], so many outputs of a kernel, and how they are convolved into so many windows."""

    x: Ints
    outputs: int
    kernel: Ints
    of: Convolved
    size: Ints

    @property
    def w(self) -> Ints:
        """The shape of the weights."""
        return (self.outputs, self.x[1] // self.of.groups, *self.kernel)

    @property
    def y(self) -> Ints:
        """That of the result."""
        return (self.x[0], self.outputs, *self.size)


CASES = (
    Numbers((2, 3, 7), 4, (3,), Convolved((1,), (1,), (0,)), (5,)),
    Numbers((1, 2, 9), 3, (4,), Convolved((3,), (2,), (2,)), (3,)),
    Numbers((2, 3, 5, 6), 5, (3, 3), Convolved((1, 1), (1, 1), (1, 1)), (5, 6)),
    Numbers((2, 4, 8, 7), 6, (3, 2), Convolved((2, 3), (1, 1), (1, 0), 2), (4, 3)),
    Numbers((1, 3, 6, 5), 6, (2, 3), Convolved((2, 2), (1, 2), (1, 2), 3), (4, 3)),
    Numbers((3, 8, 4, 9), 16, (1, 1), Convolved((1, 1), (1, 1), (0, 0)), (4, 9)),
    Numbers((2, 8, 6, 6), 8, (3, 3), Convolved((2, 2), (1, 1), (1, 1)), (3, 3)),
    Numbers((1, 2, 4, 5, 4), 3, (2, 3, 2), Convolved((1, 2, 2), (1, 1, 1), (1, 1, 0)), (5, 3, 2)),
    Numbers((1, 1, 3, 3), 2, (5, 5), Convolved((1, 1), (1, 1), (2, 2)), (3, 3)),
    Numbers((2, 6, 11), 12, (4,), Convolved((2,), (1,), (3,), 6), (6,)),
    Numbers((1, 4, 4, 5, 6), 4, (2, 3, 2), Convolved((1, 2, 2), (2, 1, 1), (1, 1, 0), 4), (3, 3, 3)),
)


def forward(case: Numbers, x: Any, w: Any, bias: Any = None) -> Any:
    """By torch, with the padding that is missing at the end."""
    pads: list[int] = []
    of = case.of
    for d in reversed(range(len(case.kernel))):
        reach = (case.size[d] - 1) * of.stride[d] + (case.kernel[d] - 1) * of.dilation[d] + 1
        pads += [of.low[d], reach - x.shape[d + 2] - of.low[d]]
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(case.kernel) - 1]
    return convolve(F.pad(x, pads), w, bias, of.stride, 0, of.dilation, of.groups)


def gradient(case: Numbers, of: int, given: Any, dy: Any) -> Any:
    """That of x (0) or w (1) from the other and dy."""
    with torch.enable_grad():
        point = torch.zeros((case.x, case.w)[of], dtype=dy.dtype, requires_grad=True)
        y = forward(case, *((point, given) if of == 0 else (given, point)))
        found = torch.autograd.grad(y, point, dy, create_graph=True)[0]
    return found if given.requires_grad or dy.requires_grad else found.detach()


def convolutions() -> Iterator[Sample]:
    """The three ops of each case, and some of them with channels last."""
    for number, case in enumerate(CASES):
        for last in (False, True) if number in (1, 3, 5, 6, 7, 9, 10) else (False,):
            yield from three(case, last)


def three(case: Numbers, last: bool) -> Iterator[Sample]:
    of = case.of._replace(channels_last=last)

    def sample(make: type[Any], shapes: Sequence[Ints], size: Ints, computed: Callable[..., Any]) -> Sample:
        def build(a: Any, b: Any, *bias: Any) -> Operation:
            return make(a, b, of, size, *bias)

        def expected(*operands: Any) -> Any:
            given = (x.movedim(-1, 1) if x.ndim > 1 else x for x in operands) if last else operands
            result = computed(*given)
            return result.movedim(1, -1) if last else result

        texts = ("x".join(map(str, moved(shape) if last else shape)) for shape in shapes)
        return Sample(f"{case.x} {case.outputs} {case.kernel} {of}", tensors(*texts), build, expected)

    yield sample(nn.ConvolutionOp, (case.x, case.w), case.size, lambda x, w: forward(case, x, w))
    biased = (case.x, case.w, (case.outputs,))
    yield sample(nn.ConvolutionOp, biased, case.size, lambda x, w, bias: forward(case, x, w, bias))
    yield sample(
        nn.ConvolutionInputGradOp, (case.y, case.w), case.x[2:], lambda dy, w: gradient(case, 0, w, dy)
    )
    yield sample(
        nn.ConvolutionWeightGradOp, (case.x, case.y), case.kernel, lambda x, dy: gradient(case, 1, x, dy)
    )


def moved(shape: Ints) -> Ints:
    """With channels last."""
    if len(shape) == 1:
        return shape
    first, channels, *spatial = shape
    return (first, *spatial, channels)
