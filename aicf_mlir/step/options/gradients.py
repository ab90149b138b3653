"""`keep_gradients`: gradients that can be read after a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class KeptGradients(Effect):
    """The choice to keep every gradient readable."""

    are_kept: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(bool(given["keep_gradients"]))

    def passes(self, device: str) -> Mapping[str, str]:
        return {"apply-optimizer": "keep-grads"} if self.are_kept else {}
