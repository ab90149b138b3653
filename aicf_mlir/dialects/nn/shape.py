"""Ops that move or retype elements and compute nothing: constant, detach, reshape, transpose, cast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import DenseArrayBase, FloatAttr, TensorType, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import Canonicalized, ValueOp
from aicf_mlir.ir.body import COMPUTE, Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.expect import Value, is_float, with_shape
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface, NotDifferentiable
from aicf_mlir.ir.properties import float_attr, ints_attr
from aicf_mlir.ir.tensor_op import AnyTensor, element_type, shape_of, tensor_type

__all__ = ["CastOp", "ConstantOp", "DetachOp", "ReshapeOp", "TransposeOp"]

MOST_EXACT = float(1 << 53)
"""The bound up to which float64, in which constants are written, has every integer."""


@irdl_op_definition
class ConstantOp(ValueOp):
    """A tensor with `value` everywhere, rounded once to the element type."""

    name = "nn.constant"

    value = prop_def(FloatAttr.constr(f64))

    traits = traits_def(NotDifferentiable("it has no operands"))

    def __init__(self, value: float, type: AnyTensor):
        super().__init__(properties={"value": float_attr(value)}, result_types=[type])

    def inferred_type(self) -> AnyTensor:
        value = self.value.value.data
        if not is_float(self.result) and not (value.is_integer() and abs(value) <= MOST_EXACT):
            raise VerifyException(
                f"expected a whole number of at most 2^53 for {self.result.type}, got {value}"
            )
        return tensor_type(self.result)


@irdl_op_definition
class DetachOp(ValueOp):
    """x, through which no gradient flows. Differentiation takes it away."""

    name = "nn.detach"

    x = operand_def(TensorType)

    traits = traits_def(NotDifferentiable("no gradient flows through it"))

    def __init__(self, x: Value):
        super().__init__(operands=[x], result_types=[tensor_type(x)])

    def inferred_type(self) -> AnyTensor:
        return tensor_type(self.x)


@irdl_op_definition
class ReshapeOp(ValueOp, DifferentiableInterface, Canonicalized):
    """The same elements in row-major order, in the shape of the result."""

    name = "nn.reshape"

    x = operand_def(TensorType)

    def __init__(self, x: Value, shape: Sequence[int]):
        super().__init__(operands=[x], result_types=[with_shape(x, shape)])

    def inferred_type(self) -> AnyTensor:
        have, want = math.prod(shape_of(self.x)), math.prod(shape_of(self.result))
        if have != want:
            raise VerifyException(
                f"expected {have} elements as in {self.x.type}, got {want} in {self.result.type}"
            )
        return with_shape(self.x, shape_of(self.result))

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [builder.insert(ReshapeOp(g, shape_of(self.x))).result]


@irdl_op_definition
class TransposeOp(ValueOp, DifferentiableInterface, Canonicalized):
    """Dimension i of the result is dimension perm[i] of x."""

    name = "nn.transpose"

    x = operand_def(TensorType)
    perm = prop_def(DenseArrayBase.constr(i64))

    def __init__(self, x: Value, perm: Sequence[int]):
        shape = shape_of(x)
        perm = [d + len(shape) if d < 0 else d for d in perm]
        if sorted(perm) != list(range(len(shape))):
            raise VerifyException(f"expected perm to be a permutation of 0..{len(shape) - 1}, got {perm}")
        super().__init__(
            operands=[x],
            properties={"perm": ints_attr(perm)},
            result_types=[with_shape(x, [shape[d] for d in perm])],
        )

    def inferred_type(self) -> AnyTensor:
        shape, perm = shape_of(self.x), self.perm.get_values()
        if sorted(perm) != list(range(len(shape))):
            raise VerifyException(
                f"expected perm to be a permutation of 0..{len(shape) - 1}, got {list(perm)}"
            )
        return with_shape(self.x, [shape[d] for d in perm])

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        perm = self.perm.get_values()
        inverse = sorted(range(len(perm)), key=lambda i: perm[i])
        return [builder.insert(TransposeOp(g, inverse)).result]


@irdl_op_definition
class CastOp(ValueOp, DifferentiableInterface, GeneratedInterface, Canonicalized):
    """Each element rounded once to the element type of the result (to nearest, ties to even).

    A float becomes an integer towards zero, and true if it is not 0.
    """

    name = "nn.cast"
    LAUNCH: ClassVar = "copy"

    x = operand_def(TensorType)

    def __init__(self, x: Value, element_type: Attribute):
        super().__init__(operands=[x], result_types=[TensorType(element_type, shape_of(x))])

    def inferred_type(self) -> AnyTensor:
        return TensorType(element_type(self.result), shape_of(self.x))

    def body(self) -> Body:
        """The body by way of the compute type of the result: that rounds twice from f64 to half precision, the op once."""
        target = COMPUTE[element_name(element_type(self.result))]

        def formula(x: Scalar) -> Scalar:
            return x.cast(target)

        return trace(self.compute_types, formula)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [builder.insert(CastOp(g, element_type(self.x))).result if is_float(self.x) else None]


def wide_element(value: Value) -> Attribute:
    """The element type that kernels compute in."""
    return ELEMENT_TYPES[COMPUTE[element_name(element_type(value))]]


def as_element(builder: Builder, value: SSAValue, element: Attribute) -> SSAValue:
    """`value` in another element type; itself if it has that type."""
    return value if element_type(value) == element else builder.insert(CastOp(value, element)).result
