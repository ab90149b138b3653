"""Convolutions of any rank, stride, padding, dilation and groups, and their gradients: bilinear, each a gradient of another.

`low` is the padding before the first element, in each spatial dimension; the padding behind the last one follows from the sizes.
Element i, window o and position k belong together where `i = o * stride + k * dilation - low`. `channels_last` says how all
three tensors lie: [N, spatial, C] instead of [N, C, spatial]. A kernel may multiply the zeros of the padding, so a window that
goes beyond the image may give a NaN where a factor is not finite; so do some of torch's kernels.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import NamedTuple

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, IntegerAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import SumOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.linear_algebra import expect_tf32_allowed
from aicf_mlir.dialects.nn.window_relation import Windows
from aicf_mlir.ir.expect import Value, expect_float, expect_type, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, int_attr, ints_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["ConvolutionInputGradOp", "ConvolutionOp", "ConvolutionWeightGradOp", "Convolved", "ConvolvingOp"]

MOST_DIMS = 3
"""Spatial dimensions."""


class Convolved(NamedTuple):
    """What the three ops of one convolution share. Padding, stride and dilation have a number for each spatial dimension."""

    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    groups: int = 1
    channels_last: bool = False
    allow_tf32: bool = False

    def windows(self, kernel: Sequence[int]) -> Windows:
        """The relation between elements and windows."""
        return Windows.of(kernel, self.stride, self.dilation, self.low)

    def parts(self, value: Value) -> Shape:
        """The shape of one of the tensors, taken apart."""
        first, *rest = shape_of(value)
        *spatial, channels = rest if self.channels_last else (*rest[1:], rest[0])
        return Shape(first, channels, tuple(spatial))

    def whole(self, like: Value, first: int, channels: int, spatial: Sequence[int]) -> AnyTensor:
        """The type of a tensor of these parts."""
        rest = (*spatial, channels) if self.channels_last else (channels, *spatial)
        return with_shape(like, (first, *rest))

    def expect_operands(self, a: Value, b: Value, size: Sequence[int]) -> tuple[Shape, Shape]:
        """The parts of both; refuses what is no convolution."""
        expect_float("the first operand", a)
        rank = len(shape_of(a)) - 2
        if not 1 <= rank <= MOST_DIMS or any(len(each) != rank for each in (*self[:3], size)):
            raise VerifyException(
                f"expected 1 to {MOST_DIMS} spatial dimensions and a number for each, got {tensor_type(a)}"
            )
        if element_type(a) != element_type(b) or len(shape_of(b)) != rank + 2:
            raise VerifyException(
                f"expected two tensors of one type and rank, got {tensor_type(a)} and {tensor_type(b)}"
            )
        if min(*self.stride, *self.dilation, self.groups) < 1 or min(*self.low, *size) < 0:
            raise VerifyException("expected stride, dilation and groups from 1 on, low and size from 0 on")
        if self.allow_tf32:
            expect_tf32_allowed(a)
        return self.parts(a), self.parts(b)

    def expect(self, holds: bool, a: Value, b: Value) -> None:
        """Raise VerifyException unless images, channels and groups fit."""
        if not holds:
            raise VerifyException(f"{tensor_type(a)} and {tensor_type(b)} do not fit in {self.groups} groups")


class Shape(NamedTuple):
    """A tensor of images [N, C, spatial], or of weights [outputs, channels of a group, kernel]."""

    first: int
    channels: int
    spatial: tuple[int, ...]


class ConvolvingOp(ValueOp, DifferentiableInterface, abc.ABC):
    """One of the three. `size` are the spatial sizes of its result."""

    stride = prop_def(DenseArrayBase.constr(i64))
    dilation = prop_def(DenseArrayBase.constr(i64))
    low = prop_def(DenseArrayBase.constr(i64))
    size = prop_def(DenseArrayBase.constr(i64))
    groups = prop_def(IntegerAttr, default_value=int_attr(1))
    channels_last = prop_def(BoolAttr, default_value=bool_attr(False))
    allow_tf32 = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(self, a: Value, b: Value, convolved: Convolved, size: Sequence[int], *more: Value | None):
        super().__init__(
            operands=[a, b, *more],
            properties={
                **{name: ints_attr(getattr(convolved, name)) for name in ("stride", "dilation", "low")},
                "size": ints_attr(size),
                "groups": int_attr(convolved.groups),
                "channels_last": bool_attr(convolved.channels_last),
                "allow_tf32": bool_attr(convolved.allow_tf32),
            },
            result_types=[self.type_of(a, b, convolved, size)],
        )

    @classmethod
    @abc.abstractmethod
    def type_of(cls, a: Value, b: Value, of: Convolved, size: Sequence[int]) -> AnyTensor:
        """The type of the result."""

    def inferred_type(self) -> AnyTensor:
        return self.type_of(*self.factors, self.convolved, self.size.get_values())

    @property
    def factors(self) -> tuple[SSAValue, SSAValue]:
        """The two tensors that are multiplied."""
        a, b, *_ = self.operands
        return a, b

    @property
    def convolved(self) -> Convolved:
        """The numbers."""
        return Convolved(
            self.stride.get_values(),
            self.dilation.get_values(),
            self.low.get_values(),
            self.groups.value.data,
            is_true(self.channels_last),
            is_true(self.allow_tf32),
        )

    def spatial(self, value: Value) -> tuple[int, ...]:
        """The spatial sizes of one of the tensors."""
        return self.convolved.parts(value).spatial


@irdl_op_definition
class ConvolutionOp(ConvolvingOp):
    """y[N, O, size]: at each window of x[N, C, spatial] the sum of its elements times w[O, C / groups, kernel], plus bias[O]."""

    name = "nn.convolution"

    x = operand_def(TensorType)
    w = operand_def(TensorType)
    bias = opt_operand_def(TensorType)

    def __init__(
        self, x: Value, w: Value, convolved: Convolved, size: Sequence[int], bias: Value | None = None
    ):
        super().__init__(x, w, convolved, size, bias)

    def inferred_type(self) -> AnyTensor:
        found = super().inferred_type()
        if self.bias is not None:
            expect_type("bias", self.bias, with_shape(self.x, shape_of(self.w)[:1]))
        return found

    @classmethod
    def type_of(cls, a: Value, b: Value, of: Convolved, size: Sequence[int]) -> AnyTensor:
        x, w = of.expect_operands(a, b, size)
        of.expect(x.channels == w.channels * of.groups and w.first % of.groups == 0, a, b)
        return of.whole(a, x.first, w.first, size)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        dx = ConvolutionInputGradOp(g, self.w, self.convolved, self.spatial(self.x))
        dw = ConvolutionWeightGradOp(self.x, g, self.convolved, self.spatial(self.w))
        found = [builder.insert(dx).result, builder.insert(dw).result]
        if self.bias is None:
            return found
        rank = len(shape_of(g))
        channels = rank - 1 if self.convolved.channels_last else 1
        others = [d for d in range(rank) if d != channels]
        return [*found, builder.insert(SumOp(g, others, keepdim=False)).result]


@irdl_op_definition
class ConvolutionInputGradOp(ConvolvingOp):
    """dx[N, C, size] of dy[N, O, windows] and w[O, C / groups, kernel]; as an op of a model, a transposed convolution."""

    name = "nn.convolution_input_grad"

    dy = operand_def(TensorType)
    w = operand_def(TensorType)

    @classmethod
    def type_of(cls, a: Value, b: Value, of: Convolved, size: Sequence[int]) -> AnyTensor:
        dy, w = of.expect_operands(a, b, size)
        of.expect(dy.channels == w.first and w.first % of.groups == 0, a, b)
        return of.whole(a, dy.first, w.channels * of.groups, size)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        ddy = ConvolutionOp(g, self.w, self.convolved, self.spatial(self.dy))
        dw = ConvolutionWeightGradOp(g, self.dy, self.convolved, self.spatial(self.w))
        return [builder.insert(ddy).result, builder.insert(dw).result]


@irdl_op_definition
class ConvolutionWeightGradOp(ConvolvingOp):
    """dw[O, C / groups, size] of x[N, C, spatial] and dy[N, O, windows]."""

    name = "nn.convolution_weight_grad"

    x = operand_def(TensorType)
    dy = operand_def(TensorType)

    @classmethod
    def type_of(cls, a: Value, b: Value, of: Convolved, size: Sequence[int]) -> AnyTensor:
        x, dy = of.expect_operands(a, b, size)
        fits = x.first == dy.first and x.channels % of.groups == 0 and dy.channels % of.groups == 0
        of.expect(fits, a, b)
        return of.whole(a, dy.channels, x.channels // of.groups, size)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        dx = ConvolutionInputGradOp(self.dy, g, self.convolved, self.spatial(self.x))
        ddy = ConvolutionOp(self.x, g, self.convolved, self.spatial(self.dy))
        return [builder.insert(dx).result, builder.insert(ddy).result]
