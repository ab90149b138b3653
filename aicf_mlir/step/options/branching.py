"""Whether a step gets parallel branches: `AICF_BRANCHES=0` in the environment leaves out the pass side-by-side.

A plan for the CPU has none in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aicf_mlir.machine import environment


@dataclass(frozen=True)
class Branching:
    """Whether there were to be branches when a step was asked for; what is compiled of it later is alike."""

    is_wanted: bool

    @classmethod
    def of_environment(cls) -> Branching:
        """As the environment says now."""
        return cls(environment.is_on(environment.BRANCHES))

    @property
    def passes(self) -> Mapping[str, str]:
        """The options of passes."""
        return {"side-by-side": ""} if self.is_wanted else {}
