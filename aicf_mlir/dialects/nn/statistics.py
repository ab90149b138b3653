"""Statistics over some dimensions: an op with two results, made of others."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, FloatAttr, TensorType, f64, i64
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, SumOp, normalized_dims, reduced_type
from aicf_mlir.dialects.nn.common import NNOp
from aicf_mlir.dialects.nn.pointwise import AddOp, IsfiniteOp, MulOp, ReluOp, SubOp, WhereOp
from aicf_mlir.dialects.nn.reductions import MeanOp, divided
from aicf_mlir.dialects.nn.shape import ConstantOp, ReshapeOp, as_element, wide_element
from aicf_mlir.dialects.nn.slicing import SplitOp
from aicf_mlir.ir.expect import Value, scalar_of
from aicf_mlir.ir.interfaces import DecomposableInterface, DifferentiableInPartsInterface
from aicf_mlir.ir.properties import bool_attr, float_attr, ints_attr, is_true
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of

__all__ = ["VarMeanOp"]

SAMPLED = 32
"""A mean near that of many rows is that of one in so many."""
LEAST_SAMPLED = 1 << 20
"""The elements below which a walk through all takes no longer."""
MANY_ROWS = 256
"""Rows from which on a GPU walks down columns twice in a launch (passes/fuse/after_columns.py). With fewer most threads idle."""


@irdl_op_definition
class VarMeanOp(NNOp, DifferentiableInPartsInterface, DecomposableInterface):
    """
    Variance and mean of x over `dims` (sorted, unique); with `keepdim` they stay as dimensions of size 1.

    The variance is the sum of the squared differences from the mean over `count - correction`, or over 0 where
    that is negative, as in torch.
    """

    name = "nn.var_mean"

    x = operand_def(TensorType)
    dims = prop_def(DenseArrayBase.constr(i64))
    correction = prop_def(FloatAttr.constr(f64))
    keepdim = prop_def(BoolAttr, default_value=bool_attr(False))
    variance = result_def(TensorType)
    mean = result_def(TensorType)

    def __init__(
        self, x: Value, dims: Sequence[int] | None = None, correction: float = 1.0, keepdim: bool = False
    ):
        """Negative `dims` count from the last dimension; None is over all of them."""
        normal = normalized_dims(dims, len(shape_of(x)))
        super().__init__(
            operands=[x],
            properties={
                "dims": ints_attr(normal),
                "correction": float_attr(correction),
                "keepdim": bool_attr(keepdim),
            },
            result_types=[reduced_type(x, normal, keepdim)] * 2,
        )

    def inferred_types(self) -> Sequence[AnyTensor]:
        if not self.correction.value.data >= 0:
            raise VerifyException(f"expected a correction of 0 or more, got {self.correction.value.data}")
        return [reduced_type(self.x, self.dims.get_values(), is_true(self.keepdim))] * 2

    @property
    def count(self) -> int:
        """The number of elements that a mean is of."""
        return prod(shape_of(self.x)[dim] for dim in self.dims.get_values())

    @property
    def divisor(self) -> float:
        """The divisor of the sum of squares."""
        return max(0.0, self.count - self.correction.value.data)

    def vjp_in_parts(
        self, builder: Builder, cotangents: Sequence[SSAValue | None]
    ) -> Sequence[SSAValue | None]:
        variance, mean = cotangents
        total = None if variance is None else self._of_variance(builder, variance)
        if mean is not None:
            dims, keepdim = self.dims.get_values(), is_true(self.keepdim)
            alone = MeanOp(self.x, dims, keepdim)
            (part,) = alone.vjp(builder, [mean])
            alone.erase()  # it is in no block, and must not stay among the readers of x
            total = part if total is None or part is None else builder.insert(AddOp(total, part)).result
        return [total]

    def _of_variance(self, builder: Builder, g: SSAValue) -> SSAValue:
        """2 g (x - mean) / divisor."""
        g = self._spread(builder, divided(builder, g, self.divisor / 2))
        difference = builder.insert(SubOp(self.x, self._spread(builder, self.mean))).result
        return builder.insert(MulOp(g, difference)).result

    def _spread(self, builder: Builder, value: SSAValue) -> SSAValue:
        """A value of the results' shape repeated over the reduced dimensions."""
        kept = reduced_type(self.x, self.dims.get_values(), keepdim=True).get_shape()
        if shape_of(value) != kept:
            value = builder.insert(ReshapeOp(value, kept)).result
        return builder.insert(BroadcastToOp(value, shape_of(self.x))).result

    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        """
        Decompose the op, in float32 for half precision, and round once.

        Terms are taken from a number near the mean, and what their own mean is by that corrects it and the variance: the
        corrected two-pass algorithm, Chan, Golub, LeVeque, "Algorithms for Computing the Sample Variance", 1983. Where the
        mean is far larger than the deviation, gradients of a norm have no more digits than that mean. Of many rows a sample
        is as good: it costs no walk through x. A GPU needs none where columns are reduced (codegen/cuda/moments.py).
        """
        x = as_element(builder, self.x, wide_element(self.x))
        dims = self.dims.get_values()
        again = not is_cpu(target) and dims == tuple(range(len(dims))) and self.count >= MANY_ROWS
        sample = x if again else self._sample(builder, x)
        near = builder.insert(MeanOp(sample, dims, keepdim=True)).result
        zero, count = (
            builder.insert(ConstantOp(number, scalar_of(near))).result for number in (0.0, float(self.count))
        )
        near = builder.insert(WhereOp(builder.insert(IsfiniteOp(near)), near, zero)).result
        difference = builder.insert(SubOp(x, near)).result
        squares = builder.insert(MulOp(difference, difference)).result
        total = builder.insert(SumOp(squares, dims, keepdim=True)).result
        rest = builder.insert(MeanOp(difference, dims, keepdim=True)).result
        mean = builder.insert(AddOp(near, rest)).result
        excess = builder.insert(MulOp(rest, builder.insert(MulOp(rest, count)).result)).result
        total = builder.insert(ReluOp(builder.insert(SubOp(total, excess)))).result
        variance = divided(builder, total, self.divisor)
        return [self._like_result(builder, value) for value in (variance, mean)]

    def _sample(self, builder: Builder, x: SSAValue) -> SSAValue:
        """The first rows of x, at least one in `SAMPLED`; all of them if they are few, or each lies side by side.

        If the sample is a part f of all, the square of its distance from the mean is at most 1/f times the variance. So
        the terms lose no more digits than those of 1/f, however unlike the others the sample may be.
        """
        shape, dims = shape_of(x), self.dims.get_values()
        side_by_side = dims == tuple(range(len(shape) - len(dims), len(shape)))
        if side_by_side or prod(shape) < LEAST_SAMPLED:
            return x
        left = SAMPLED
        for dim in dims:
            size = shape[dim]
            if (taken := -(-size // left)) < size:
                x = builder.insert(SplitOp(x, dim, (taken, size - taken))).results[0]
            left = max(1, left * taken // size)
        return x

    def _like_result(self, builder: Builder, value: SSAValue) -> SSAValue:
        if shape_of(value) != shape_of(self.mean):
            value = builder.insert(ReshapeOp(value, shape_of(self.mean))).result
        return as_element(builder, value, element_type(self.mean))
