"""Element types of tensors: their IR type, their name in the runtime, their size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import bf16, f16, f32, f64, i1, i8, i32, i64
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

ELEMENT_TYPES: dict[str, tuple[Attribute, int]] = {
    "f32": (f32, 4),
    "f64": (f64, 8),
    "f16": (f16, 2),
    "bf16": (bf16, 2),
    "i64": (i64, 8),
    "i32": (i32, 4),
    "i8": (i8, 1),  # workspaces only: bytes without a meaning
    "i1": (i1, 1),
}
"""By name: the IR type and the bytes of one element in memory."""

_NAMES: dict[Attribute, str] = {type_: name for name, (type_, _) in ELEMENT_TYPES.items()}


def element_name(element: Attribute) -> str:
    """The runtime's name of an element type, e.g. "bf16"."""
    if (name := _NAMES.get(element)) is None:
        raise VerifyException(f"element type must be one of {', '.join(ELEMENT_TYPES)}, got {element}")
    return name


def byte_size(element: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor."""
    return math.prod(shape) * ELEMENT_TYPES[element][1]
