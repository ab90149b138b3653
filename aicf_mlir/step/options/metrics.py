"""`metrics`: outputs that are gathered over steps; the trace puts the accumulators among the buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True, eq=False)
class GatheredMetrics(Effect):
    """The accumulators of a step."""

    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(Metrics(given["metrics"]))
