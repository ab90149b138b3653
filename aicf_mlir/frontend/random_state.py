"""The random numbers of a compiled step: their source, and the way to begin them again."""

from __future__ import annotations

import torch

from aicf_mlir.errors import BindError

RANDOM = "random"
"""The name of the tensor among the buffers of a step."""

SEEDS = 1 << 64
APART = 0x9E3779B97F4A7C15
"""The distance of the seeds of two ranks: 2^64 over the golden ratio, as in splitmix64."""


class RandomState:
    """The tensor [seed, steps taken] of one step, an i64[2] on its device; made when the step first draws.

    Without a seed, one is drawn from torch's generator of the CPU, which `torch.manual_seed` sets.
    """

    def __init__(self, seed: int | None = None):
        self._rank = 0
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
            self._tensor = torch.tensor([self._here(seed), 0], dtype=torch.int64, device=device)
        return self._tensor

    def of_rank(self, rank: int) -> None:
        """Draw other numbers than the other ranks of a group do from the same seed; to be said before the first draw."""
        self._rank = rank

    def apart(self, ranks: int) -> None:
        """Draw other numbers than so many ranks earlier, from now on."""
        if self._tensor is not None:
            seed, steps = map(int, self._tensor)
            self._tensor.copy_(torch.tensor([checked((seed + ranks * APART) % SEEDS), steps], device="cpu"))

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
            self._tensor.copy_(torch.tensor([self._here(self._seed), 0], device="cpu"))

    def _here(self, seed: int) -> int:
        """Return the seed of this rank: far from those of others, and from the seeds next to this one."""
        return checked((seed + self._rank * APART) % SEEDS)


def checked(seed: object) -> int:
    """Return a seed as an i64. Raises BindError for a value that is no whole number of 64 bits."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not -(SEEDS // 2) <= seed < SEEDS:
        raise BindError(f"seed must be a whole number of 64 bits, got {seed!r}")
    return seed if seed < SEEDS // 2 else seed - SEEDS
