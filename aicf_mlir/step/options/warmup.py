"""`warmup_inputs`, `warmup_runs` and `warmup_required`: the runs before a step is captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aicf_mlir.runtime.micro_batches import StepBatch, each_step
from aicf_mlir.step.options.accumulate import Accumulation
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.compiled_step import CompiledTrainStep


@dataclass(frozen=True, eq=False)
class Warmup(Effect):
    """The batches that warm a new step up, and the requirement that it be warm before it is captured."""

    batches: Sequence[StepBatch] = ()
    runs: int = 1
    is_required: bool = False

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        if "warmup_inputs" not in given:
            return cls(is_required=given["warmup_required"])
        batches = each_step(given["warmup_inputs"], Accumulation.of(given).count)
        return cls(batches, given["warmup_runs"], given["warmup_required"])

    def begin(self, step: CompiledTrainStep) -> None:
        for batch in self.batches:
            step.warmup(batch, self.runs)
