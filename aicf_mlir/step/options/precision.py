"""`precision`: the precision of a step; the model and its loss are traced under it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aicf_mlir.frontend.precision import Precision
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class StepPrecision(Effect):
    """The requested precision, on no device yet."""

    precision: Precision = field(default_factory=Precision)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(Precision.of(given["precision"]))

    @property
    def described(self) -> Mapping[str, str | None]:
        return {"precision": self.precision.name}
