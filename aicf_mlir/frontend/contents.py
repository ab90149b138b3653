"""The content of a tensor, as a value that can be compared to the last bit."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import torch

from aicf_mlir.frontend.types import describe

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Types whose equality is that of bits, by their bytes."""

MOST_TOLD = 3
"""The most differing elements that a message lists."""


class Contents:
    """A copy of a tensor's content."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor.detach().clone()

    @cached_property
    def _words(self) -> torch.Tensor:
        return bits(self.tensor)

    def is_of(self, tensor: torch.Tensor) -> bool:
        """True if a tensor holds the same: dtype, shape and each bit."""
        own = self.tensor
        if tensor.dtype is not own.dtype or tensor.shape != own.shape or tensor.device != own.device:
            return False
        with torch._C.DisableTorchFunction():  # pyright: ignore[reportPrivateUsage]
            return torch.equal(bits(tensor.detach()), self._words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contents) and self.is_of(other.tensor)

    def __hash__(self) -> int:
        return hash((self.tensor.dtype, self.tensor.shape))

    def __repr__(self) -> str:
        return describe(self.tensor)

    def difference(self, other: Contents) -> str:
        """Return the differing content of another tensor, in words."""
        own, now = self.tensor, other.tensor
        if (own.dtype, own.shape, own.device) != (now.dtype, now.shape, now.device):
            return f"was {self}, now {other}"
        differs = self._words != other._words
        if own.is_complex():
            differs = differs.any(-1)
        flat: Any = differs.reshape(-1).nonzero().flatten()
        places: list[int] = flat.tolist()
        told = [
            f"{list(index(place, own.shape))} was {own.reshape(-1)[place].item()}, now {now.reshape(-1)[place].item()}"
            for place in places[:MOST_TOLD]
        ]
        more = f"; and {len(places) - MOST_TOLD} more" if len(places) > MOST_TOLD else ""
        return f"holds other values: at {', '.join(told)}{more}"


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as whole numbers, or booleans."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(INTEGERS[tensor.itemsize]) if tensor.is_floating_point() else tensor


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors hold the same: dtype, shape and each bit."""
    alike = (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
    return alike and torch.equal(bits(one), bits(other))


def index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of an element from its number in order."""
    return tuple(place // prod(shape[dim + 1 :]) % size for dim, size in enumerate(shape))


def content(tensor: torch.Tensor) -> Any:
    """Return the content of a tensor, as a plain value."""
    host = bits(tensor.detach().cpu().contiguous())
    return str(tensor.dtype), tuple(tensor.shape), host.numpy().tobytes()
