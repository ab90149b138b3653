"""What all nn ops share: tensor types, attribute helpers, and one way to state and check the result type."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    BFloat16Type,
    BoolAttr,
    DenseArrayBase,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    StringAttr,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.base import AnyTensor, TensorOp, tensor_type

Value: TypeAlias = SSAValue | Operation
"""An operand as a constructor takes it: a value, or an op that has one result."""

Float = Float16Type | BFloat16Type | Float32Type | Float64Type
I64Array: TypeAlias = DenseArrayBase[IntegerType]
I64Attr: TypeAlias = IntegerAttr[IntegerType]
F64Attr: TypeAlias = FloatAttr[Float64Type]


def bool_attr(value: bool) -> BoolAttr:
    """`true` or `false` as an attribute."""
    return IntegerAttr.from_bool(value)


def is_true(attribute: BoolAttr) -> bool:
    """The value of a `true` or `false` attribute."""
    return attribute.value.data != 0


def ints_attr(values: Sequence[int]) -> I64Array:
    """`array<i64: ...>`."""
    return DenseArrayBase.from_list(i64, list(values))


def float_attr(value: float) -> F64Attr:
    """A number in double precision."""
    return FloatAttr(value, f64)


def is_float(value: Value) -> bool:
    """Whether the elements of `value` are f16, bf16, f32 or f64."""
    return isinstance(tensor_type(value).get_element_type(), Float)


def expect_float(name: str, value: Value) -> None:
    """Refuse an operand whose elements are not of a floating-point type."""
    if not is_float(value):
        raise VerifyException(
            f"expected {name} of element type f16, bf16, f32 or f64, got {tensor_type(value)}"
        )


def expect_type(name: str, value: Value, expected: AnyTensor) -> None:
    """Refuse an operand of another type than the op's other operands imply."""
    if tensor_type(value) != expected:
        raise VerifyException(f"expected {name} of type {expected}, got {tensor_type(value)}")


def expect_rank(name: str, value: Value, at_least: int) -> tuple[int, ...]:
    """The shape of an operand that needs `at_least` so many dimensions."""
    shape = tensor_type(value).get_shape()
    if len(shape) < at_least:
        raise VerifyException(f"expected {name} of rank {at_least} or more, got {tensor_type(value)}")
    return shape


def expect_one_of(name: str, attribute: StringAttr, choices: Sequence[str]) -> None:
    """Refuse a string attribute outside its few legal values."""
    if attribute.data not in choices:
        wanted = " or ".join(f'"{choice}"' for choice in choices)
        raise VerifyException(f'expected {name} to be {wanted}, got "{attribute.data}"')


def with_shape(value: Value, shape: Sequence[int]) -> AnyTensor:
    """The type of `value` in another shape."""
    return TensorType(tensor_type(value).get_element_type(), tuple(shape))


def scalar_of(value: Value) -> AnyTensor:
    """The 0-d tensor type of the element type of `value`."""
    return with_shape(value, ())


def normalized_dims(dims: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions as the dialect writes them: counted from the front, sorted; None means all."""
    return tuple(range(rank)) if dims is None else tuple(sorted(d + rank if d < 0 else d for d in dims))


class NNOp(TensorOp, abc.ABC):
    """A pure op on statically shaped tensors; operands and attributes imply the type of its one result."""

    result = result_def(TensorType)

    traits = traits_def(Pure())

    @abc.abstractmethod
    def inferred_type(self) -> AnyTensor:
        """The only legal result type; raises VerifyException for illegal operands or attributes."""

    def verify_(self) -> None:
        types: list[Attribute] = [*self.operand_types, *self.result_types]
        for written in types:
            if isinstance(written, TensorType) and not written.has_static_shape():
                raise VerifyException(f"expected static shapes, got {written}")
        expected = self.inferred_type()
        if self.result.type != expected:
            raise VerifyException(f"expected result type {expected}, got {self.result.type}")
