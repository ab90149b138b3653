"""A built step under examination: measured, compared with torch, certified; everything is put back each time."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.nn.attention import AttentionDropoutOp
from aicf_mlir.dialects.nn.randomness import RandomizedOp
from aicf_mlir.errors import BindError, DataError, StateError, UncomparedError
from aicf_mlir.frontend.example import loss_function
from aicf_mlir.frontend.model import modules_of, unwrapped
from aicf_mlir.frontend.outcome import LOSS
from aicf_mlir.frontend.random_state import RANDOM
from aicf_mlir.host.interrupts import held
from aicf_mlir.profiling import Profile
from aicf_mlir.profiling.measuring import Measured, expect_runs, profiled
from aicf_mlir.runtime.aside import kept_aside
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.certificate import Certificate, FailedCheck, Subject, certify
from aicf_mlir.runtime.certificate.reference import MEANING, interpret, read_arguments
from aicf_mlir.runtime.micro_batches import StepBatch, parted
from aicf_mlir.runtime.program import load_program
from aicf_mlir.runtime.snapshot import Snapshot, put_back
from aicf_mlir.step.built_step import BuiltStep
from aicf_mlir.step.eager.check import Contender, beside_torch
from aicf_mlir.step.eager.draws import drawn_as
from aicf_mlir.step.eager.in_double import in_double
from aicf_mlir.step.eager.layers import LayerOutputs, agreement
from aicf_mlir.step.eager.live import Live
from aicf_mlir.step.eager.report import Comparison
from aicf_mlir.step.eager.torch_step import Results, TorchStep, TrainingLoop
from aicf_mlir.step.eager.units import allows_tf32, unit_of
from aicf_mlir.step.options.averaging import WeightAverage
from aicf_mlir.step.options.clipping import Clipping
from aicf_mlir.step.options.loss_scaling import LossScaling
from aicf_mlir.step.options.metrics import GatheredMetrics
from aicf_mlir.step.options.seed import Randomness

SKIPPED = "The step was skipped whole: nothing has changed"


class ExaminedStep(BuiltStep, abc.ABC):
    """A step with memory and plans, and its public reports; its subclass runs it."""

    @abc.abstractmethod
    def _prepare(self) -> None: ...
    @abc.abstractmethod
    def _refuse_autocast(self) -> None: ...
    @abc.abstractmethod
    def _snapshot(self, on_host: bool = False) -> Snapshot: ...
    @abc.abstractmethod
    def _restore(self, snapshot: Snapshot) -> None: ...
    @abc.abstractmethod
    def _data_error(self, plan: BoundPlan, done: str) -> DataError: ...
    @abc.abstractmethod
    def _range(self, what: str) -> AbstractContextManager[None]: ...

    _takes_signals: bool = True
    """Whether a signal may come between two runs of a measurement; not where other processes wait for all of them."""

    def profile(self, n: int = 20, batch: StepBatch | None = None) -> Profile:
        """Measure each launch over `n` steps with `batch`, or without one with the batch loaded last.

        Everything is put back: parameters, optimizer state, counters, the batch, and the results of the last step.
        Raises as `train_step`, StateError without inputs and for a batch size that has no plan yet, BindError for an
        `n` below 1.
        """
        expect_runs(self.name, n)
        with self._session:
            plan, addresses, _owners = self._looked_at(batch, "profile")
            measured = Measured(plan.executor, self._stream)
            while len(measured.steps) < n:  # a waiting signal is delivered between two steps
                with held() as waiting, self._range("profile"), kept_aside(plan.arenas, self._stream):
                    before = self._snapshot()
                    again = partial(put_back, self._store, before, self._stream)
                    try:
                        if not measured.run(n, again, addresses, waiting if self._takes_signals else ()):
                            raise self._data_error(plan, SKIPPED)
                    finally:
                        self._restore(before)
            return profiled(self.name, self._plan_of(plan), self._store.device, measured)

    def check(self, batch: StepBatch | None = None, *, steps: int = 1, exact: bool = False) -> Comparison:
        """Compare `steps` steps with torch's own eager step on the live model: forward, backward, optimizer.

        Each begins from the state that the compiled step has reached, with `batch` or the batch loaded last. Loss,
        outputs, and changes of parameters, buffers and optimizer state are compared with torch's. Torch also runs from
        states moved by rounding, which gives the allowed difference. A comparison that is false names the tensors that
        differ and the first layer. The forward runs in Python several times; everything that it changes is put back.
        With `exact` torch also computes the step in float64 on the host, from the same values, and the step may be
        three times as far from that as torch is. Raises as `train_step`, StateError without inputs, BindError for
        `steps` below 1.
        """
        if steps.__class__ is not int or steps < 1:
            raise BindError(f"{self.name}: check(steps=…) needs a positive integer, got {steps!r}")
        with self._session:
            plan, addresses, _owners = self._looked_at(batch, "check")
            with held(), self._range("check"), kept_aside(plan.arenas, self._stream):
                plan.executor.load(addresses, self._stream)
                return self._beside_torch(plan, steps, exact)

    def _looked_at(
        self, batch: StepBatch | None, what: str
    ) -> tuple[BoundPlan, tuple[int, ...], Sequence[torch.Tensor]]:
        """Return the plan for a batch, or that of the last step, and the addresses of the batch."""
        if batch is None and self._session.active < 0:
            raise StateError(f"{self.name}: {what}() has no inputs yet; pass a batch")
        plan, entries = (self._active, None) if batch is None else self._select(batch, look=True)
        self._refuse_autocast()
        self._prepare()
        return (plan, (), ()) if entries is None else (plan, *plan.stage(entries))

    def _beside_torch(self, plan: BoundPlan, steps: int, exact: bool = False) -> Comparison:
        """Compare with torch on the loaded batch; the state ends as it began."""
        start = self._snapshot()
        try:
            live, meaning = self._live(plan), self._meaning(plan)
            contender = Contender(
                self.name,
                self._store.device,
                partial(self._one_step, plan),
                lambda: plan.gradients,
                self._snapshot,
                self._put_back,
                partial(self._first_layer, plan),
                self._is_cuda and allows_tf32(meaning),
            )
            torch_step = self._torch_step(plan, live)
            wide = partial(self._in_double, live, torch_step) if exact else None
            unit = unit_of(meaning, self._is_cuda)
            return beside_torch(contender, live, torch_step, steps, unit, wide)
        finally:
            self._restore(start)

    def _put_back(self, snapshot: object) -> None:
        assert isinstance(snapshot, Snapshot)
        self._restore(snapshot)

    def _one_step(self, plan: BoundPlan) -> Results:
        """Run a step of the plan on the loaded batch; its state is published, and the state machine keeps its state."""
        self._prepare()
        skipped = self._request.effect(LossScaling).skipped
        if plan.executor.run(self._stream, ()):
            raise self._data_error(plan, SKIPPED)
        if self._optimizer_state is not None and self._request.effect(LossScaling).skipped == skipped:
            self._optimizer_state.publish()
        return {LOSS: plan.loss.clone(), **{name: value.clone() for name, value in plan.outputs.items()}}

    def _live(self, plan: BoundPlan) -> Live:
        """Return the user's objects, and a copy of the loaded batch."""
        traced = self._built.traces[self._plans.index(plan)]
        tensors = {name: tensor.clone() for name, tensor in plan.inputs.items()}
        count = self._parts
        parts = [tensors] if count is None else parted(tensors, count)
        typed = [
            {name: tensor.to(traced.inputs[name].dtype) for name, tensor in part.items()} for part in parts
        ]
        batches = [self._structure.rebuilt(part) for part in typed]
        modules = modules_of(unwrapped(self._request.model), self._function)
        numbers = {id(value.tensor) for value in self._built.host_values.values()}
        hidden = numbers | {id(tensor) for tensor in self._request.effect(GatheredMetrics).metrics.tensors}
        others = {n: t for n, t in traced.buffers.items() if n != RANDOM and id(t) not in hidden}
        return Live(
            modules,
            traced.parameters,
            others,
            self._built.optimizers,
            batches[0] if count is None else batches,
        )

    @property
    def _function(self) -> Callable[..., Any]:
        return loss_function(self._request.loss_fn)

    def _torch_step(self, plan: BoundPlan, live: Live) -> TorchStep:
        """Return the same step by torch."""
        request = self._request
        return TrainingLoop(
            live,
            unwrapped(request.model),
            self._function,
            request.precision_here,
            request.effect(Clipping),
            request.effect(LossScaling),
            self._parts,
            request.effect(WeightAverage).decay,
            live.others,
            partial(self._drawn, plan),
        )

    def _in_double(self, live: Live, torch_step: TorchStep, is_skipped: bool) -> tuple[Live, TorchStep]:
        if not isinstance(torch_step, TrainingLoop):
            raise BindError(
                f"{self.name}: check(exact=True) is not for loop bodies, which step live optimizers; leave it out"
            )
        return in_double(live, torch_step, is_skipped)

    def _drawn(self, plan: BoundPlan) -> AbstractContextManager[Callable[[], None]]:
        """Run a step of torch that draws the same numbers as the next step of the plan."""
        module = self._built.traced_modules[self._plans.index(plan)]
        return drawn_as(
            [
                op if isinstance(op, RandomizedOp) else op.of_ones()
                for op in module.walk()
                if isinstance(op, RandomizedOp | AttentionDropoutOp)
            ],
            self._request.effect(Randomness).state.tensor,
        )

    def _meaning(self, plan: BoundPlan) -> ModuleOp:
        """Return the pure step, before it is lowered."""
        stages = self._built.stages[self._plans.index(plan)]
        return stages[next(stage for stage in MEANING if stage in stages)]

    def _first_layer(self, plan: BoundPlan, outputs: LayerOutputs, wrong: Sequence[str]) -> str | None:
        """Return the first layer that differs, from the state before the step."""
        meant = interpret(self._meaning(plan), read_arguments(self._subject(plan)))
        agrees = agreement(meant.values, [values for _, values in meant.others])
        return outputs.first_other(meant.values, agrees) or outputs.last_owner(wrong)

    def _subject(self, plan: BoundPlan) -> Subject:
        stages = self._built.stages[self._plans.index(plan)]
        modules = {name: stages[name] for name in stages}
        text = plan.placement(load_program(modules["plan"]))
        arenas, device, stream = plan.arenas, self._store.device, self._stream
        file = self._built.plan_file
        return Subject(self.name, plan.bound, text, modules, arenas, plan.executor, device, stream, file)

    def _certify(self, plan: BoundPlan, steps: int) -> Certificate:
        """Return the certificate of a captured step whose inputs are loaded."""
        findings, uncompared = list[FailedCheck](), None
        try:
            with held(), kept_aside(plan.arenas, self._stream):
                compared = self._beside_torch(plan, min(steps, 2))
            findings += [] if compared.equal else [FailedCheck("torch", compared.message)]
        except (UncomparedError, DataError) as error:
            uncompared = str(error)
        return certify(self._subject(plan), steps, findings, uncompared)
