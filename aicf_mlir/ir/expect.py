"""Common checks of the verifiers of tensor ops, each with one message: expected and actual value.

All raise VerifyException, from a verifier as well as from a constructor that cannot infer its result type.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import TypeAlias, cast

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    NoneAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.dtypes import ELEMENT_TYPES, element_name
from aicf_mlir.ir.element_types import DTYPES
from aicf_mlir.ir.layouts import layout_of
from aicf_mlir.ir.tensor_op import AnyTensor, tensor_type

Value: TypeAlias = SSAValue | Operation
"""An operand as a constructor takes it: a value, or an op that has one result."""

Float = Float16Type | BFloat16Type | Float32Type | Float64Type
MESSAGE_ORDER = ("i1", "i32", "i64", "f16", "bf16", "f32", "f64")
FLOAT_NAMES = "f16, bf16, f32 or f64"


VALUES = frozenset(ELEMENT_TYPES[row.name] for row in DTYPES if row.is_value)
"""Element types of tensors."""


def with_shape(value: Value, shape: Sequence[int]) -> AnyTensor:
    """The type of `value` in another shape."""
    return TensorType(tensor_type(value).get_element_type(), tuple(shape))


def scalar_of(value: Value) -> AnyTensor:
    """The 0-d tensor type of the element type of `value`."""
    return with_shape(value, ())


def is_float_type(type: Attribute) -> bool:
    """True if `type` is a tensor of f16, bf16, f32 or f64."""
    return isinstance(type, TensorType) and isinstance(type.get_element_type(), Float)


def is_float(value: Value) -> bool:
    """True if `value` is a tensor of f16, bf16, f32 or f64."""
    return is_float_type(SSAValue.get(value).type)


def expect_float(name: str, value: Value) -> None:
    """Refuse an operand whose elements are not of a floating-point type."""
    if not is_float(value):
        raise VerifyException(f"expected {name} of element type {FLOAT_NAMES}, got {tensor_type(value)}")


def listed(elements: Collection[str]) -> str:
    """`f16, bf16, f32 or f64`: element types for a message, floats last."""
    *most, last = [name for name in MESSAGE_ORDER if name in elements]
    return f"{', '.join(most)} or {last}" if most else last


def expect_element(name: str, value: Value, takes: Collection[str]) -> str:
    """The element type of an operand, by its name; refuses one that is not among `takes`."""
    own = element_name(tensor_type(value).get_element_type())
    if own not in takes:
        raise VerifyException(f"expected {name} of element type {listed(takes)}, got {tensor_type(value)}")
    return own


def expect_type(name: str, value: Value, expected: AnyTensor) -> None:
    """Refuse an operand of another type than the op's other operands imply."""
    if tensor_type(value) != expected:
        raise VerifyException(f"expected {name} of type {expected}, got {tensor_type(value)}")


def expect_rank(name: str, value: Value, at_least: int) -> tuple[int, ...]:
    """The shape of an operand that needs at least `at_least` dimensions."""
    shape = tensor_type(value).get_shape()
    if len(shape) < at_least:
        raise VerifyException(f"expected {name} of rank {at_least} or more, got {tensor_type(value)}")
    return shape


def expect_one_of(name: str, attribute: StringAttr, choices: Sequence[str]) -> None:
    """Refuse a string attribute outside its few legal values."""
    if attribute.data not in choices:
        wanted = " or ".join(f'"{choice}"' for choice in choices)
        raise VerifyException(f'expected {name} to be {wanted}, got "{attribute.data}"')


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape of these shapes together by NumPy's rules; raises VerifyException if they do not fit."""
    found: list[int] = []
    for sizes in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        others = {size for size in sizes if size != 1}
        if len(others) > 1:
            got = " and ".join(str(list(shape)) for shape in shapes)
            raise VerifyException(
                f"expected shapes that broadcast together (equal or 1, from the last dimension on), got {got}"
            )
        found.append(others.pop() if others else 1)
    return tuple(reversed(found))


def expect_tensors(op: Operation, strided: bool = False) -> None:
    """Refuse operands and results other than tensors of static shape and of a number that kernels know.

    The tensors are dense, unless `strided` tells that the op looks at layouts.
    """
    for written in (*op.operand_types, *op.result_types):
        tensor = cast(AnyTensor, written)
        if not isinstance(written, TensorType):
            raise VerifyException(f"expected tensors, got {written}")
        if any(size < 0 for size in written.get_shape()):
            raise VerifyException(f"expected static shapes, got {written}")
        if written.get_element_type() not in VALUES:
            raise VerifyException(f"expected element type {listed(MESSAGE_ORDER)}, got {written}")
        if not isinstance(written.encoding, NoneAttr):
            if not strided:
                raise VerifyException(f"expected dense tensors, got {written}")
            layout_of(tensor)
