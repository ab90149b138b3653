"""The element types that the front end knows, in torch and in xDSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from xdsl.ir import Attribute

from aicf_mlir.ir.dtypes import ELEMENT_TYPES as IR_TYPES
from aicf_mlir.ir.element_types import DTYPES

ELEMENT_TYPES: dict[torch.dtype, Attribute] = {
    getattr(torch, row.library): IR_TYPES[row.name] for row in DTYPES if row.is_value
}


_NAMES = {getattr(torch, row.library): row.name for row in DTYPES}


def element_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in IR; torch's name if there is none."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


BYTES, OF_BYTES = torch.uint8, torch.int32
"""The additional type that a batch may have, and its type in a step (aten_bytes)."""


def stored(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that an entry of a batch of `dtype` has in a step."""
    return OF_BYTES if dtype is BYTES else dtype


def in_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as the real one of its parts, which are a further last dimension of two; others unchanged."""
    return torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor


def as_users(real: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return a real tensor of a step as one of the kind of the user's `tensor`: complex where that is."""
    return torch.view_as_complex(real) if tensor.is_complex() else real


def has_numbers(tensor: torch.Tensor) -> bool:
    """True if a tensor can have a gradient: of floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def is_supported(dtype: torch.dtype) -> bool:
    """True if tensors of `dtype` can be values of the nn dialect."""
    return dtype in ELEMENT_TYPES


def supported_dtypes() -> str:
    """The supported dtypes, for messages."""
    return ", ".join(str(dtype).removeprefix("torch.") for dtype in ELEMENT_TYPES)


def describe(value: object) -> str:
    """`float32[64, 256]` for a tensor, the plain text of anything else; for messages."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{[int(size) for size in value.shape]}"
    if isinstance(value, (list, tuple)):
        items = cast(Sequence[object], value)
        return f"[{', '.join(describe(item) for item in items)}]"
    return str(value)
