"""`plan`: a plan that a user has edited, in place of the step's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aicf_mlir.runtime.plan_file import PlanFile
from aicf_mlir.step.options.further_sizes import FurtherSizes
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


@dataclass(frozen=True, eq=False)
class EditedPlan(Effect):
    """The plan, or None for the step's own."""

    file: PlanFile | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(PlanFile.read(given["plan"]))

    def check(self, request: Request) -> None:
        if self.file is not None:
            self.file.expect_one_size(len(request.shape_groups), request.effect(FurtherSizes).most)
