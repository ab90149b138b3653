"""One way of running a train step again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Contender:
    """`run(n)` runs n steps, waits for them and gives the loss of the last one."""

    name: str
    run: Callable[[int], float]
    ours: bool = False


def repeat(step: Callable[[], torch.Tensor], n: int) -> float:
    """The loss after n calls of `step`, which returns it."""
    for _ in range(n - 1):
        step()
    return float(step())
