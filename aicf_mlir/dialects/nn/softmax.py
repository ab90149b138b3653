"""softmax and its logarithm over the last dimension, and their gradients."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def

from aicf_mlir.dialects.nn.common import UnaryOp, UnfoldsBody, ValueOp
from aicf_mlir.dialects.nn.rows.row import Formula
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.expect import Value, expect_float, expect_type
from aicf_mlir.ir.formula import Scalar, exp, log, row_max, row_sum, select, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["LogSoftmaxGradOp", "LogSoftmaxOp", "SafeSoftmaxOp", "SoftmaxGradOp", "SoftmaxOp"]


class LastDimension(GeneratedInterface, abc.ABC):
    """The base of ops whose rows are the last dimension; a number is a row of one."""

    @property
    def domain(self) -> tuple[int, ...]:
        return shape_of(self.operands[0]) or (1,)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return (len(self.domain) - 1,)

    @abc.abstractmethod
    def formula(self) -> Formula:
        """The element of the result from those of the operands."""

    def body(self) -> Body:
        return trace(self.compute_types, self.formula())


class SoftmaxGradBase(ValueOp, LastDimension, UnfoldsBody, abc.ABC):
    """The cotangent of the operand, from the cotangent dy of the result `saved`."""

    dy = operand_def(TensorType)
    saved = operand_def(TensorType)

    def __init__(self, dy: Value, saved: Value):
        super().__init__(operands=[dy, saved], result_types=[tensor_type(dy)])

    def inferred_type(self) -> AnyTensor:
        expect_float("dy", self.dy)
        expect_type("y", self.saved, tensor_type(self.dy))
        return tensor_type(self.dy)


@irdl_op_definition
class SoftmaxGradOp(SoftmaxGradBase):
    """y * (dy - the sum of dy * y over the last dimension)."""

    name = "nn.softmax_grad"

    def formula(self) -> Formula:
        return softmax_gradient


def softmax_gradient(g: Scalar, y: Scalar) -> Scalar:
    """The gradient from the cotangent of the result y, and y."""
    return y * (g - row_sum(g * y))


@irdl_op_definition
class LogSoftmaxGradOp(SoftmaxGradBase):
    """dy - exp(y) * the sum of dy over the last dimension."""

    name = "nn.log_softmax_grad"

    def formula(self) -> Formula:
        return lambda g, y: g - exp(y) * row_sum(g)


@irdl_op_definition
class SoftmaxOp(UnaryOp, LastDimension):
    """exp(x) over its sum along the last dimension."""

    name = "nn.softmax"

    def formula(self) -> Formula:
        return softmax

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(SoftmaxGradOp(cotangents[0], self.result)).result]


def softmax(x: Scalar) -> Scalar:
    """The softmax of a row without overflow: the largest exponent is 0."""
    weight = exp(x - row_max(x))
    return weight / row_sum(weight)


@irdl_op_definition
class SafeSoftmaxOp(UnaryOp, LastDimension):
    """The softmax of a row of attention's scores: 0 throughout one that is -infinity throughout.

    The gradient is that of a softmax, so a NaN among the cotangents of such a row is a NaN, as in torch.
    """

    name = "nn.safe_softmax"

    def formula(self) -> Formula:
        return safe_softmax

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(SoftmaxGradOp(cotangents[0], self.result)).result]


def safe_softmax(x: Scalar) -> Scalar:
    """The result of `softmax`, except for the largest and the total of a row with all scores hidden."""
    largest = row_max(x)
    weight = exp(x - select(largest <= -math.inf, 0.0, largest))
    total = row_sum(weight)
    return weight / select(total <= 0.0, 1.0, total)


@irdl_op_definition
class LogSoftmaxOp(UnaryOp, LastDimension):
    """x minus the logarithm of the sum of exp(x) along the last dimension."""

    name = "nn.log_softmax"

    def formula(self) -> Formula:
        return log_softmax

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [builder.insert(LogSoftmaxGradOp(cotangents[0], self.result)).result]


def log_softmax(x: Scalar) -> Scalar:
    """The logarithm of `softmax`, also without overflow."""
    shifted = x - row_max(x)
    return shifted - log(row_sum(exp(shifted)))
