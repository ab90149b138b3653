"""Broadcasting and its transpose, the sum: each is the other's vector-Jacobian product."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.nn.common import Canonicalized, ValueOp
from aicf_mlir.dialects.nn.rows.row import FLOATS, NUMBERS
from aicf_mlir.dialects.nn.shape import ReshapeOp
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.expect import Value, broadcast_shapes, expect_element, with_shape
from aicf_mlir.ir.formula import Scalar, row_sum, trace
from aicf_mlir.ir.generated import GeneratedInterface
from aicf_mlir.ir.interfaces import DifferentiableInterface
from aicf_mlir.ir.properties import bool_attr, ints_attr, is_true
from aicf_mlir.ir.tensor_op import AnyTensor, shape_of, tensor_type

__all__ = ["BroadcastToOp", "ReductionOp", "SumOp", "broadcast_shapes"]


def sum_to_shape(builder: Builder, value: SSAValue, shape: Sequence[int]) -> SSAValue:
    """The gradient of a broadcast from `shape`: `value` summed over the added and stretched dimensions."""
    have = shape_of(value)
    added = len(have) - len(shape)
    dims = [d for d, size in enumerate(have) if d < added or (size != 1 and shape[d - added] == 1)]
    if dims:
        value = builder.insert(SumOp(value, dims, keepdim=all(d >= added for d in dims))).result
    return value if shape_of(value) == tuple(shape) else builder.insert(ReshapeOp(value, shape)).result


@irdl_op_definition
class BroadcastToOp(ValueOp, DifferentiableInterface, Canonicalized):
    """x repeated to the shape of the result, by NumPy's rules."""

    name = "nn.broadcast_to"

    x = operand_def(TensorType)

    def __init__(self, x: Value, shape: Sequence[int]):
        super().__init__(operands=[x], result_types=[with_shape(x, shape)])

    def inferred_type(self) -> AnyTensor:
        wanted = shape_of(self.result)
        if broadcast_shapes(shape_of(self.x), wanted) != wanted:
            raise VerifyException(f"expected an operand that broadcasts to {list(wanted)}, got {self.x.type}")
        return with_shape(self.x, wanted)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [sum_to_shape(builder, g, shape_of(self.x))]


def normalized_dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions as the dialect writes them: counted from the front, sorted; None means all."""
    return tuple(range(rank)) if dims is None else tuple(sorted(d + rank if d < 0 else d for d in dims))


class ReductionOp(ValueOp, GeneratedInterface, Canonicalized, abc.ABC):
    """Reduces x over `dims` (sorted, unique); with `keepdim` they stay as dimensions of size 1."""

    TAKES: ClassVar[frozenset[str]] = FLOATS
    """Element types of x."""
    RESULT: ClassVar[str | None] = None
    """The element type of the result, if it is not that of x."""

    x = operand_def(TensorType)
    dims = prop_def(DenseArrayBase.constr(i64))
    keepdim = prop_def(BoolAttr, default_value=bool_attr(False))

    def __init__(
        self,
        x: Value,
        dims: Sequence[int] | None = None,
        keepdim: bool = False,
        properties: Mapping[str, Attribute] | None = None,
    ):
        """Negative `dims` count from the last dimension; None reduces over all of them."""
        normal = normalized_dims(dims, len(shape_of(x)))
        super().__init__(
            operands=[x],
            properties={"dims": ints_attr(normal), "keepdim": bool_attr(keepdim), **(properties or {})},
            result_types=[self.type_of(x, normal, keepdim)],
        )

    @classmethod
    def type_of(cls, x: Value, dims: Sequence[int], keepdim: bool) -> AnyTensor:
        """The type of the result."""
        type_ = reduced_type(x, dims, keepdim, cls.TAKES)
        return type_ if cls.RESULT is None else TensorType(ELEMENT_TYPES[cls.RESULT], type_.get_shape())

    def inferred_type(self) -> AnyTensor:
        return self.type_of(self.x, self.dims.get_values(), is_true(self.keepdim))

    @property
    def is_one_itself(self) -> bool:
        """True if the result over no dimensions is x itself."""
        return True

    @abc.abstractmethod
    def formula(self, x: Scalar) -> Scalar:
        """The result from the elements of a row, by reductions."""

    def body(self) -> Body:
        return trace(self.compute_types, self.formula)

    @property
    def domain(self) -> tuple[int, ...]:
        """The dimensions of the domain, with one more if none is reduced."""
        shape = shape_of(self.x)
        return shape if len(self.dims) else (1, *shape)

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        return tuple(self.dims.get_values()) or (0,)

    @property
    def whole_results(self) -> tuple[bool, ...]:
        return (False,)

    def reduced_count(self) -> int:
        """The number of elements of x that contribute to one element of the result."""
        shape = shape_of(self.x)
        return math.prod(shape[d] for d in self.dims.get_values())

    def kept(self, builder: Builder, value: SSAValue) -> SSAValue:
        """A value of the shape of the result, with the reduced dimensions as those of size 1."""
        shape = reduced_type(self.x, self.dims.get_values(), True, self.TAKES).get_shape()
        return value if shape_of(value) == shape else builder.insert(ReshapeOp(value, shape)).result

    def spread(self, builder: Builder, g: SSAValue) -> SSAValue:
        """The cotangent of the result repeated over the reduced dimensions."""
        return builder.insert(BroadcastToOp(self.kept(builder, g), shape_of(self.x))).result


def reduced_type(x: Value, dims: Sequence[int], keepdim: bool, takes: frozenset[str] = FLOATS) -> AnyTensor:
    """The result type of a reduction of `x` over `dims`, which must be sorted, unique and in range."""
    expect_element("the operand", x, takes)
    shape = shape_of(x)
    if list(dims) != sorted({d for d in dims if 0 <= d < len(shape)}):
        raise VerifyException(
            f"expected dims sorted, unique and in 0..{len(shape) - 1} for {tensor_type(x)}, got {list(dims)}"
        )
    if keepdim:
        return with_shape(x, [1 if d in dims else size for d, size in enumerate(shape)])
    return with_shape(x, [size for d, size in enumerate(shape) if d not in dims])


@irdl_op_definition
class SumOp(ReductionOp, DifferentiableInterface):
    """The sum over `dims`."""

    name = "nn.sum"
    TAKES: ClassVar = NUMBERS

    def formula(self, x: Scalar) -> Scalar:
        return row_sum(x)

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        (g,) = cotangents
        return [self.spread(builder, g)]
