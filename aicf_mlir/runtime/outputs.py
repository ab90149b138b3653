"""The outputs that a step has returned with the loss, to read after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from aicf_mlir.errors import BindError, StateError
from aicf_mlir.runtime.bound_plan import BoundPlan


class Outputs(Mapping[str, torch.Tensor]):
    """The outputs by name. Each access returns a copy on the step's device, which no later step changes.

    Raises StateError before the first step, and BindError for a name that the loss function did not return.
    """

    def __init__(self, step: str, plan: BoundPlan):
        """Take `step`, the step's name for messages."""
        self._step = step
        self._plan = plan

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._plan.outputs:
            known = ", ".join(self._plan.outputs) or "none; let loss_fn return (loss, {name: tensor})"
            raise BindError(f"{self._step}: no output {name!r}; there are {known}")
        expect_run(self._step, self._plan, f"output {name!r}")
        return self._plan.outputs[name].clone()

    def __contains__(self, name: object) -> bool:
        return name in self._plan.outputs

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.outputs)

    def __len__(self) -> int:
        return len(self._plan.outputs)


def expect_run(step: str, plan: BoundPlan, what: str) -> None:
    """Raise StateError if `plan` has not run yet, so that `what` has no value."""
    stats = plan.executor.stats()
    if not stats["runs"] and not stats["replays"]:
        raise StateError(f"{step}: no step has run yet, so {what} has no value")
