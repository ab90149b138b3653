"""The tensors inside of `torch.vmap`: each is a wrapper of a tensor with one more dimension."""

from __future__ import annotations

from typing import Any

import torch

FUNCTORCH: Any = vars(torch._C)["_functorch"]  # pyright: ignore[reportPrivateUsage]
"""Torch's own functions on them; there are no public ones."""


def is_batched(tensor: torch.Tensor) -> bool:
    """True for a tensor inside of vmap that differs from row to row."""
    return FUNCTORCH.is_batchedtensor(tensor)


def unbatched(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with all rows."""
    while is_batched(tensor):
        tensor = FUNCTORCH.get_unwrapped(tensor)
    return tensor


def only_batches() -> bool:
    """True if no transform of torch.func runs but vmap."""
    if not FUNCTORCH.maybe_current_level():
        return True
    return all(each.key() == FUNCTORCH.TransformType.Vmap for each in FUNCTORCH.get_interpreter_stack())
