"""The random numbers of a compiled step: their source, and the way to begin them again."""

from __future__ import annotations

import torch

from aicf_mlir.errors import BindError

RANDOM = "random"
"""The name of the tensor among the buffers of a step."""

SEEDS = 1 << 64


class RandomState:
    """The tensor [seed, steps taken] of one step, an i64[2] on its device; made when the step first draws.

    Without a seed, one is drawn from torch's generator of the CPU, which `torch.manual_seed` sets.
    """

    def __init__(self, seed: int | None = None):
        self._seed = None if seed is None else checked(seed)
        self._tensor: torch.Tensor | None = None

    def on(self, device: torch.device) -> torch.Tensor:
        """The tensor, always the same one."""
        if self._tensor is None:
            seed = (
                int(torch.randint(-(1 << 63), (1 << 63) - 1, (), device="cpu"))
                if self._seed is None
                else self._seed
            )
            self._tensor = torch.tensor([seed, 0], dtype=torch.int64, device=device)
        return self._tensor

    @property
    def tensor(self) -> torch.Tensor | None:
        """Return the tensor, if the step draws."""
        return self._tensor

    @property
    def is_drawn_from(self) -> bool:
        """True if the step has random numbers."""
        return self._tensor is not None

    def seed(self, seed: int) -> None:
        """Begin again with a seed."""
        self._seed = checked(seed)
        if self._tensor is not None:
            self._tensor.copy_(torch.tensor([self._seed, 0], device="cpu"))


def checked(seed: object) -> int:
    """Return a seed as an i64. Raises BindError for a value that is no whole number of 64 bits."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not -(SEEDS // 2) <= seed < SEEDS:
        raise BindError(f"seed must be a whole number of 64 bits, got {seed!r}")
    return seed if seed < SEEDS // 2 else seed - SEEDS
