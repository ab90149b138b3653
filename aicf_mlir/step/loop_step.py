"""A compiled loop body: a train step with the body's arguments and results, which also steps its schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir.errors import StateError
from aicf_mlir.frontend.loop_body import LoopTraced
from aicf_mlir.frontend.loop_body.numbers import NumberReads
from aicf_mlir.frontend.loop_body.python_state import KeptPlace
from aicf_mlir.frontend.outcome import LOSS
from aicf_mlir.host.interrupts import held
from aicf_mlir.runtime.binding import Built
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.eager_steps import belongs_to
from aicf_mlir.runtime.schedulers import put_states, states_of
from aicf_mlir.runtime.snapshot import Snapshot
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.eager.live import Live
from aicf_mlir.step.eager.torch_step import Results, TorchStep

if TYPE_CHECKING:
    from aicf_mlir.step.compile_body import LoopRequest


@dataclass(frozen=True)
class LoopSnapshot(Snapshot):
    """A snapshot with the schedulers of the loop body."""

    schedulers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    around: list[tuple[KeptPlace, Any]] = field(default_factory=list["tuple[KeptPlace, Any]"])
    """The content of the places around the body."""


class CompiledLoopStep(CompiledTrainStep):
    """One call of a loop body at fixed addresses; made by `aicf_mlir.compile_step`.

    Each step is followed by the steps of the schedulers that the body calls; `replay(n)` is n calls of the body.
    """

    _request: LoopRequest

    def __call__(self, *batch: Any) -> Any:
        """Run one call of the body eagerly; return its results as tensors of their own."""
        self.train_step(batch[0] if len(batch) == 1 else batch)
        return self.returned

    @property
    def returned(self) -> Any:
        """Return the body's results in the last step."""
        with self._session:
            if not self._begun:
                raise StateError(f"{self.name}: no step has been taken yet")
            plan = self._active
            return self._traced(plan).returned.rebuilt(lambda name: self._output(plan, name))

    def _traced(self, plan: BoundPlan) -> LoopTraced:
        return cast(LoopTraced, self._built.traces[self._plans.index(plan)])

    @property
    def _is_steady(self) -> bool:
        return not self._has_calls and super()._is_steady

    def _adopt(self, built: Built) -> None:
        super()._adopt(built)
        self._follow_calls()
        for optimizer in built.optimizers:
            belongs_to(optimizer, self)

    def _follow_calls(self) -> None:
        traces = cast(list[LoopTraced], self._built.traces)
        self._has_calls = any(traced.calls or traced.opening or traced.kept for traced in traces)

    def _prepare(self) -> None:
        super()._prepare()
        self._follow_calls()  # the step may have been traced again

    def _advance(self, plan: BoundPlan, run: Callable[[], int]) -> int:
        traced = self._traced(plan)
        if not self._has_calls and (not traced.taken or self._is_steady):
            return super()._advance(plan, run)
        with held():
            if self._has_calls:
                self._open(plan)
            published = self._published
            failed = super()._advance(plan, run)
            if not failed:
                self._publish_taken(plan, published)
                self._finish(plan)
            return failed

    def _publish_taken(self, plan: BoundPlan, published: Sequence[str]) -> None:
        """Let the parameters have state that had some before, and those whose first step an overflow has not left out."""
        state, taken = self._optimizer_state, self._traced(plan).taken
        if state is None or not taken or set(state.names()) == set(published):
            return
        left = {n for output, names in taken.items() if not plan.outputs[output].item() for n in names}
        left -= {n for output, names in taken.items() if plan.outputs[output].item() for n in names}
        state.publish([name for name in state.names() if name in published or name not in left])

    def _open(self, plan: BoundPlan) -> None:
        """Do what Python does before a step."""
        self._prepare()  # the rates that schedulers have set after the previous step
        traced = self._traced(plan)
        for place in traced.kept:
            place.take()
        for call in traced.opening:
            call.run(lambda name: self._output(plan, name))
        if traced.opening:
            self._prepare()

    def _finish(self, plan: BoundPlan, *, shows: bool = True) -> None:
        """Do what Python does after a step; `shows`: also what only shows something."""
        for call in self._traced(plan).calls:
            if shows or not call.is_shown:
                call.run(lambda name: self._output(plan, name))

    def _output(self, plan: BoundPlan, name: str) -> torch.Tensor:
        return (plan.loss if name == LOSS else plan.outputs[name]).clone()

    @property
    def _all_schedulers(self) -> Sequence[LRScheduler]:
        schedulers: dict[int, LRScheduler] = {}
        for traced in self._built.traces:
            schedulers |= {id(scheduler): scheduler for scheduler in cast(LoopTraced, traced).stepped}
        return list(schedulers.values())

    def _one_step(self, plan: BoundPlan) -> Results:
        published = self._published
        self._open(plan)
        results = super()._one_step(plan)
        self._publish_taken(plan, published)
        self._finish(plan, shows=False)
        return results

    @property
    def _function(self) -> Callable[..., Any]:
        return self._request.body.function

    def _torch_step(self, plan: BoundPlan, live: Live) -> TorchStep:
        returned, body, precision = (
            self._traced(plan).returned,
            self._request.body,
            self._request.precision_here,
        )

        def run(batch: Any) -> Results:
            with torch.enable_grad(), self._drawn(plan), precision.autocast(), NumberReads() as reads:
                result = body.call(batch)
            return returned.results(result, reads.tensors)

        return run

    def _snapshot(self, on_host: bool = False) -> LoopSnapshot:
        plain = super()._snapshot(on_host)
        states = states_of(self._all_schedulers)
        around = [
            (place, place.content())
            for traced in self._built.traces
            for place in cast(LoopTraced, traced).kept
        ]
        return LoopSnapshot(
            plain.owner, plain.memory, plain.pieces, plain.settings, plain.published, states, around
        )

    def _restore(self, snapshot: Snapshot) -> None:
        super()._restore(snapshot)
        if isinstance(snapshot, LoopSnapshot):  # a snapshot from a file has restored them itself
            put_states(self._all_schedulers, snapshot.schedulers)
            for place, content in snapshot.around:
                place.put_back(content)
