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

__all__ = ["AddOp", "BinaryOp", "DivOp", "MulOp", "NegOp", "SubOp", "UnaryOp"]


def binary_type(x: Value, y: Value, of_integers: bool = False) -> AnyTensor:
    """The result type of an elementwise op: the shapes broadcast together, one element type."""
    if not of_integers:
        expect_float("x", x)
    if element_type(x) != element_type(y):
        raise VerifyException(
            f"expected one element type, got {tensor_type(x)} and {tensor_type(y)}; cast one of them"
        )
    return with_shape(x, broadcast_shapes(shape_of(x), shape_of(y)))


class BinaryOp(ValueOp, DifferentiableInterface, HasCanonicalizationPatternsInterface, abc.ABC):
    """An elementwise op on two operands that broadcast together."""

    OF_INTEGERS: ClassVar[bool] = False
    """Whether the op is defined for integers too; their results are exact."""

    x = operand_def(TensorType)
    y = operand_def(TensorType)

    def __init__(self, x: Value, y: Value):
        super().__init__(operands=[x, y], result_types=[binary_type(x, y, self.OF_INTEGERS)])

    def inferred_type(self) -> AnyTensor:
        return binary_type(self.x, self.y, self.OF_INTEGERS)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        x, y = self.partials(builder, g)
        return [
            sum_to_shape(builder, x, shape_of(self.x)),
            sum_to_shape(builder, y, shape_of(self.y)),
        ]

    @abc.abstractmethod
    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        """The cotangents of x and y in the result's shape, before the sum over broadcast dimensions."""

    @classmethod
    def get_canonicalization_patterns(cls) -> tuple[RewritePattern, ...]:
        from aicf_mlir.dialects.nn import canonicalization as patterns

        return (patterns.AbsorbBroadcast(), patterns.AbsorbNegation(), patterns.RemoveMultiplicationByOne())


@irdl_op_definition
class AddOp(BinaryOp):
    """x + y."""

    name = "nn.add"
    OF_INTEGERS: ClassVar = True

    traits = traits_def(Commutative())

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return g, g


@irdl_op_definition
class SubOp(BinaryOp):
    """x - y."""

    name = "nn.sub"
    OF_INTEGERS: ClassVar = True

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return g, builder.insert(NegOp(g)).result


@irdl_op_definition
class MulOp(BinaryOp):
    """x * y."""

    name = "nn.mul"

    traits = traits_def(Commutative())

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        return builder.insert(MulOp(g, self.y)).result, builder.insert(MulOp(g, self.x)).result


@irdl_op_definition
class DivOp(BinaryOp):
    """x / y."""

    name = "nn.div"

    def partials(self, builder: Builder, g: SSAValue) -> tuple[SSAValue, SSAValue]:
        slope = builder.insert(DivOp(self.result, self.y)).result
        return (
            builder.insert(DivOp(g, self.y)).result,
            builder.insert(NegOp(builder.insert(MulOp(g, slope)).result)).result,
        )


class UnaryOp(ValueOp, DifferentiableInterface, abc.ABC):
    """An op of one operand, whose type its result has."""

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
