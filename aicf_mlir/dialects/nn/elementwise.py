"""Arithmetic per element: add, sub, mul, div with NumPy broadcasting, and neg."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import TensorType
from xdsl.interfaces import HasCanonicalizationPatternsInterface
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, traits_def
from xdsl.pattern_rewriter import RewritePattern
from xdsl.traits import Commutative
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.broadcasting import broadcast_shapes, sum_to_shape
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.ir.expect import Value, expect_float, with_shape
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type


def binary_type(lhs: Value, rhs: Value, of_integers: bool = False) -> AnyTensor:
    """The result type of an elementwise op: the shapes broadcast together, one element type."""
    if not of_integers:
        expect_float("lhs", lhs)
    if element_type(lhs) != element_type(rhs):
        raise VerifyException(
            f"expected one element type, got {tensor_type(lhs)} and {tensor_type(rhs)}; cast one of them"
        )
    return with_shape(lhs, broadcast_shapes(shape_of(lhs), shape_of(rhs)))


class BinaryOp(ValueOp, DifferentiableInterface, HasCanonicalizationPatternsInterface, abc.ABC):
    """An elementwise op on two operands that broadcast together."""

    OF_INTEGERS: ClassVar[bool] = False
    """Whether the op is defined for integers too; their results are exact."""

    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    def __init__(self, lhs: Value, rhs: Value):
        super().__init__(operands=[lhs, rhs], result_types=[binary_type(lhs, rhs, self.OF_INTEGERS)])

    def inferred_type(self) -> AnyTensor:
        return binary_type(self.lhs, self.rhs, self.OF_INTEGERS)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        lhs, rhs = self.partials(builder, g)
        return [
            sum_to_shape(builder, lhs, shape_of(self.lhs)),
            sum_to_shape(builder, rhs, shape_of(self.rhs)),
        ]

    @abc.abstractmethod
    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The cotangents of lhs and rhs in the result's shape, before the sum over broadcast dimensions."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        from aicf_mlir.dialects.nn import canonicalization as patterns

        return (patterns.AbsorbBroadcast(), patterns.AbsorbNegation(), patterns.RemoveMultiplicationByOne())


@irdl_op_definition
class AddOp(BinaryOp):
    """lhs + rhs."""

    name = "nn.add"
    OF_INTEGERS: ClassVar = True

    traits = traits_def(Commutative())

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return g, g


@irdl_op_definition
class SubOp(BinaryOp):
    """lhs - rhs."""

    name = "nn.sub"
    OF_INTEGERS: ClassVar = True

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return g, builder.insert(NegOp(g)).result


@irdl_op_definition
class MulOp(BinaryOp):
    """lhs * rhs."""

    name = "nn.mul"

    traits = traits_def(Commutative())

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return builder.insert(MulOp(g, self.rhs)).result, builder.insert(MulOp(g, self.lhs)).result


@irdl_op_definition
class DivOp(BinaryOp):
    """lhs / rhs."""

    name = "nn.div"

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        slope = builder.insert(DivOp(self.result, self.rhs)).result
        return (
            builder.insert(DivOp(g, self.rhs)).result,
            builder.insert(NegOp(builder.insert(MulOp(g, slope)).result)).result,
        )


class UnaryOp(ValueOp, DifferentiableInterface, abc.ABC):
    """A function of each element of x."""

    x = operand_def(TensorType)

    def __init__(self, x: Value, **properties: Attribute):
        super().__init__(operands=[x], properties=properties, result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        expect_float("the operand", self.x)
        return tensor_type(self.x)


@irdl_op_definition
class NegOp(UnaryOp, HasCanonicalizationPatternsInterface):
    """-x."""

    name = "nn.neg"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [builder.insert(NegOp(g)).result]

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        from aicf_mlir.dialects.nn.canonicalization import CancelNegations

        return (CancelNegations(),)
