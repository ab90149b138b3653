"""Typed makers and readers of the properties that nn and optim ops carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from xdsl.dialects.builtin import (
    BoolAttr,
    DenseArrayBase,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    f64,
    i64,
)

I64Array: TypeAlias = DenseArrayBase[IntegerType]
F64Attr: TypeAlias = FloatAttr[Float64Type]


def bool_attr(value: bool) -> BoolAttr:
    """`true` or `false` as an attribute."""
    return IntegerAttr.from_bool(value)


def is_true(attribute: BoolAttr) -> bool:
    """The value of a `true` or `false` attribute."""
    return attribute.value.data != 0


def int_attr(value: int) -> IntegerAttr[IntegerType]:
    """A whole number."""
    return IntegerAttr(value, i64)


def ints_attr(values: Sequence[int]) -> I64Array:
    """`array<i64: ...>`."""
    return DenseArrayBase.from_list(i64, list(values))


def float_attr(value: float) -> F64Attr:
    """A number in double precision."""
    return FloatAttr(value, f64)
