"""`AICF_BRANCHES` in the environment: it enables parallel branches in a step, by the pass multi-stream.

`AICF_BRANCHES=0` leaves the pass out. A plan for the CPU has no branches in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.machine import environment
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class Branching(Effect):
    """The use of branches, as set when a step was requested; later compilations of the step use the same setting."""

    is_wanted: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make it from the current environment."""
        return cls(environment.is_on(environment.BRANCHES))

    def passes(self, device: str) -> Mapping[str, str]:
        return {"multi-stream": ""} if self.is_wanted else {}
