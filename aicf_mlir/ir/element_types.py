"""THE table of element types: everything that treats them differently derives its list from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DType:
    """One row of the table of element types."""

    name: str
    """The name in IR, in plans and in the runtime, e.g. "bf16"."""
    nbytes: int
    """The bytes of one element in memory."""
    library: str
    """The name in torch and NumPy (of ml_dtypes if NumPy has none), e.g. "bfloat16"."""
    safetensors: str
    """The name in checkpoints."""
    is_float: bool = False
    is_value: bool = True
    """True if tensors of the nn dialect may have it."""


DTYPES: tuple[DType, ...] = (
    DType("f32", 4, "float32", "F32", is_float=True),
    DType("f64", 8, "float64", "F64", is_float=True),
    DType("f16", 2, "float16", "F16", is_float=True),
    DType("bf16", 2, "bfloat16", "BF16", is_float=True),
    DType("i64", 8, "int64", "I64"),
    DType("i32", 4, "int32", "I32"),
    DType("i8", 1, "int8", "I8", is_value=False),  # workspaces only: bytes without a meaning
    DType("i1", 1, "bool", "BOOL"),
)

TENSOR_DTYPES = tuple(row for row in DTYPES if row.name != "i8")
"""The element types that tensors of the user may have."""

NARROW = tuple(row.name for row in DTYPES if row.is_float and row.nbytes == 2)
"""The types that mixed precision computes in, rounded from f32."""

OVERFLOWING = ("f16",)
"""The narrow types with a smaller range than f32: a term of a loss that overflows is infinite before its sum, as in torch."""

_BYTES: dict[str, int] = {row.name: row.nbytes for row in DTYPES}


def byte_size(element: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return math.prod(shape) * _BYTES[element]
