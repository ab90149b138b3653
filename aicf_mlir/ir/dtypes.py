"""Element types of tensors: their IR type, their name in the runtime, their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import bf16, f16, f32, f64, i1, i8, i32, i64
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException


@dataclass(frozen=True)
class DType:
    """One row."""

    name: str
    """In the runtime and in plans, e.g. "bf16"."""
    type: Attribute
    """In IR."""
    nbytes: int
    """Of one element in memory."""
    library: str
    """In torch and NumPy (of ml_dtypes where NumPy has none), e.g. "bfloat16"."""
    safetensors: str
    """In checkpoints."""
    is_float: bool = False
    is_value: bool = True
    """Whether tensors of the nn dialect may have it."""


DTYPES: tuple[DType, ...] = (
    DType("f32", f32, 4, "float32", "F32", is_float=True),
    DType("f64", f64, 8, "float64", "F64", is_float=True),
    DType("f16", f16, 2, "float16", "F16", is_float=True),
    DType("bf16", bf16, 2, "bfloat16", "BF16", is_float=True),
    DType("i64", i64, 8, "int64", "I64"),
    DType("i32", i32, 4, "int32", "I32"),
    DType("i8", i8, 1, "int8", "I8", is_value=False),  # workspaces only: bytes without a meaning
    DType("i1", i1, 1, "bool", "BOOL", is_value=False),
)
"""THE table of element types: everything that treats them differently derives its list from here."""

TENSOR_DTYPES = tuple(row for row in DTYPES if row.name != "i8")
"""Those that tensors of the user may have."""

BY_NAME: dict[str, DType] = {row.name: row for row in DTYPES}

_NAMES: dict[Attribute, str] = {row.type: row.name for row in DTYPES}


def element_name(element: Attribute) -> str:
    """The runtime's name of an element type, e.g. "bf16"."""
    if (name := _NAMES.get(element)) is None:
        raise VerifyException(f"element type must be one of {', '.join(BY_NAME)}, got {element}")
    return name


def byte_size(element: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return math.prod(shape) * BY_NAME[element].nbytes
