"""`check_finite`: a step with a NaN or an infinity in its loss or gradients is skipped, and raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class FiniteCheck(Effect):
    """The check of loss and gradients, on or off."""

    is_wanted: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(bool(given["check_finite"]))

    def passes(self, device: str) -> Mapping[str, str]:
        return {"check-finite": ""} if self.is_wanted else {}
