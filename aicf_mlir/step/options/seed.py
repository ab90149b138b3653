"""`seed`: the random numbers of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True, eq=False)
class Randomness(Effect):
    """The state from which the numbers are drawn; the trace puts it among the buffers if the model draws."""

    state: RandomState = field(default_factory=RandomState)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(RandomState(given["seed"]))
