"""What Python does around each step of a loop body: it sets rates before, and steps schedulers, stores and shows values after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.frontend.loop_body.returned import Returned
from aicf_mlir.frontend.loop_body.shown import Shown


@dataclass(frozen=True)
class Call:
    """A call of a method of one of the user's objects; the arguments are known after the step."""

    owner: Any
    method: str
    arguments: Returned
    """The positional arguments, and those by name."""

    def run(self, tensors: Callable[[str], torch.Tensor]) -> None:
        """Make the call; `tensors` gives the outputs of the step by name."""
        args, named = self.arguments.rebuilt(tensors)
        getattr(self.owner, self.method)(*args, **named)

    @property
    def is_shown(self) -> bool:
        """True if it shows something to the user, and does nothing else."""
        return type(self.owner) is Shown

    def is_like(self, other: Call) -> bool:
        """True if both do the same with the same outputs."""
        return (
            (self.owner == other.owner if self.is_shown and other.is_shown else self.owner is other.owner)
            and self.method == other.method
            and self.arguments.is_like(other.arguments)
        )
