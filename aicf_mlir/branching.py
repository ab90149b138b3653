"""Whether a step gets parallel branches: decided here, for every step, until they have been measured on a GPU.

`AICF_BRANCHES=1` in the environment asks for the pass side-by-side; a plan for the CPU has none in any case.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLE = "AICF_BRANCHES"


@dataclass(frozen=True)
class Branching:
    """Whether branches were asked for when a step was; what is compiled of it later is alike."""

    is_asked: bool

    @classmethod
    def of_environment(cls) -> Branching:
        """As the environment says now."""
        return cls(os.environ.get(VARIABLE) == "1")

    @property
    def passes(self) -> Mapping[str, str]:
        """The options of passes."""
        return {"side-by-side": ""} if self.is_asked else {}
