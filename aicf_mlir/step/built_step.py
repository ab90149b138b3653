"""A step in all its parts, and the queries that it answers without running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir import _C
from aicf_mlir.analysis.scalars import Scalar, scalars
from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.errors import BindError, StateError
from aicf_mlir.frontend.types import BYTES, OF_BYTES, as_users
from aicf_mlir.host.interrupts import held
from aicf_mlir.passes.autodiff import SCALE
from aicf_mlir.passes.scale_loss import SKIPPED
from aicf_mlir.reports import describe
from aicf_mlir.reports.sources import source_of
from aicf_mlir.runtime import checkpoint
from aicf_mlir.runtime.around import Around
from aicf_mlir.runtime.binding import Built
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.captured import CapturedNode, captured_nodes
from aicf_mlir.runtime.guards import Guard, Guards
from aicf_mlir.runtime.memory_report import MemoryReport, memory_report
from aicf_mlir.runtime.micro_batches import StepBatch, joined, parted, parts_of
from aicf_mlir.runtime.not_copied import NotCopied
from aicf_mlir.runtime.optimizer_calls import OptimizerCalls
from aicf_mlir.runtime.outputs import Outputs, expect_run
from aicf_mlir.runtime.retrace import Orders, Retrace
from aicf_mlir.runtime.tensors import current_stream
from aicf_mlir.runtime.watched import Watched
from aicf_mlir.step.options.accumulate import Accumulation
from aicf_mlir.step.options.averaging import WeightAverage
from aicf_mlir.step.options.clipping import Clipping
from aicf_mlir.step.options.further_sizes import FurtherSizes, RecentPlans, is_further, with_further
from aicf_mlir.step.options.loss_scaling import LossScaling
from aicf_mlir.step.options.plan import EditedPlan
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.options.warmup import Warmup

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


class BuiltStep(NotCopied):
    """The compiled and bound step: plans, memory, host scalars, guards; and reports on them."""

    def __init__(self, request: Request, built: Built):
        self.name = request.name
        self.warmup_required = request.effect(Warmup).is_required
        self._request = request
        self._install(built)

    def _install(self, built: Built) -> None:
        self.meta = built.hyperparameters
        self._store = built.store
        self._session = built.store.session
        self._request = replace(self._request, groups=None).with_effect(EditedPlan(built.plan_file))
        for effect in self._request.effects.values():
            effect.adopt(built.traces[0])
        self._parts = self._request.effect(Accumulation).count
        self._sizes = RecentPlans(self._request.effect(FurtherSizes).most, len(built.plans))
        self._structure = built.traces[0].structure
        self._optimizer_state = built.optimizer_state
        self._device = built.plans[0].loss.device
        self._is_cuda = self._device.type == "cuda"
        self._state = "created"
        self._begun = False
        self._adopt(built)

    def _adopt(self, built: Built) -> None:
        """Take the plans of `built`, and watch the values they were compiled for."""
        self._built = built
        self._plans = built.plans
        live = {value.read.place: value.follow for value in built.host_values.values()}
        retrace = Retrace(self._request, built)
        self._orders = Orders(retrace, built.traces)
        reads = [read for traced in built.traces for read in traced.reads]
        self._guards = Guards(self.name, reads, retrace, live)
        self._bound = Watched()
        groups = [group for optimizer in built.optimizers for group in optimizer.param_groups]
        self._store.watch(self._bound, {id(p) for group in groups for p in group["params"]})
        self._watched = Watched()
        self._around = Around(self.name)
        self._calls = OptimizerCalls(self.name, built.optimizers)
        for part in (
            self._around.watched,
            self._calls.watched,
            self._bound,
            self._guards.watched,
            self.meta.watched,
        ):
            self._watched.other(part)
        if self._optimizer_state is not None:
            self._watched.other(self._optimizer_state.watched)
        self._changed = self._watched.changed

    @property
    def state(self) -> str:
        """The state: one of "created", "warmed", "captured", "reset" and "closed"."""
        return self._state

    def seed(self, seed: int) -> None:
        """Draw random numbers from this seed on, as if no step had been taken. Raises BindError if the step draws none."""
        with self._session:
            state = self._request.effect(Randomness).state
            if not state.is_drawn_from:
                raise BindError(f"{self.name}: the step draws no random numbers; there is nothing to seed")
            state.seed(seed)

    @property
    def device(self) -> torch.device:
        """The device of the step."""
        return self._device

    @property
    def _active(self) -> BoundPlan:
        active = self._session.active
        return self._plans[active if active > 0 else 0]

    def guards(self) -> list[Guard]:
        """The guards of the step: every Python value it read, compared before each step; and a plan that was given."""
        file = self._built.plan_file
        return [*self._guards.guards, *([] if file is None else [file.guard])]

    @property
    def inputs(self) -> Any:
        """The memory that the step reads, in the form of a batch: with the shapes loaded last, or else the shapes
        compiled first.

        Write to these tensors in place, as to the static inputs of a CUDA graph, and pass them for a batch: nothing is copied
        then, and there is no second batch on the device. Any other batch that is loaded is written over them.
        """
        tensors, count = self._active.inputs, self._parts
        if count is None:
            return self._structure.rebuilt(tensors)
        return [self._structure.rebuilt(part) for part in parted(tensors, count)]

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """The gradients of the last step by parameter name, when compiled with `keep_gradients=True`: views, rewritten
        each step.
        """
        parameters = self._built.traces[0].parameters
        return {name: as_users(real, parameters[name]) for name, real in self._active.gradients.items()}

    @property
    def outputs(self) -> Outputs:
        """The extra outputs that `loss_fn` returned with the loss, `(loss, {name: tensor})`, in the last step that ran,
        a warm-up included.

        Each access copies. A step that a failed check has skipped still shows the values it computed.
        """
        with self._session:
            return Outputs(self.name, self._active)

    @property
    def loss(self) -> torch.Tensor:
        """The loss of the last step that ran, a warm-up included: a copy, 0-d. Raises StateError before the first."""
        with self._session:
            expect_run(self.name, self._active, "the loss")
            return self._active.loss.clone()

    @property
    def grad_norm(self) -> torch.Tensor:
        """The norm of the gradients in the last step, before `clip_grad_norm` limited it: 0-d, or with an element for
        each limit.

        Raises BindError for a step compiled without a limit, StateError before the first step.
        """
        with self._session:
            norm = self._request.effect(Clipping).norm_in(self._active.outputs, self._device)
            if not self._begun:
                raise StateError(f"{self.name}: no step has been taken yet, so no gradient has a norm")
            return norm

    @property
    def loss_scale(self) -> torch.Tensor:
        """The factor by which the next step multiplies its loss, 0-d. Raises BindError for a step compiled without
        `loss_scale`.
        """
        with self._session:
            return self._request.effect(LossScaling).tensor(SCALE)

    @property
    def skipped(self) -> int:
        """The number of steps that changed no parameter because of an inf or NaN in a gradient. Raises BindError as
        `loss_scale` does.
        """
        with self._session:
            return int(self._request.effect(LossScaling).tensor(SKIPPED).item())

    @property
    def ema(self) -> dict[str, torch.Tensor]:
        """The moving averages of the trained parameters by name, as copies. Raises BindError for a step compiled
        without `ema`.
        """
        with self._session:
            return self._request.effect(WeightAverage).values()

    def planned_kernels(self) -> list[str]:
        """The kernel ids of the plan, in order."""
        return [launch["kernel_id"] for launch in self._active.program.launches]

    def executed_kernels(self) -> list[str]:
        """The kernel ids that the last step ran, in order, as the runtime recorded them."""
        return self._active.executor.trace()

    def captured_nodes(self) -> list[CapturedNode]:
        """The nodes of the captured graph, read back from the driver: each with its launch and the nodes it waits for.

        They are the nodes of one step, in the order of its launches. Raises StateError before a capture.
        """
        return captured_nodes(self._active.program, self._active.executor)

    def ir(self, stage: str = "plan") -> str:
        """Return the step as text at a stage of the pipeline: "nn", "grad", "step", "lowered", "fused", "kernel",
        "buffers", "plan".
        """
        stages = self._built.stages[self._plans.index(self._active)]
        if stage not in stages:
            raise BindError(f"no stage {stage!r}; there are {', '.join(stages)}")
        file = self._built.plan_file
        note = "" if file is None or stage == "plan" else f"// of the model; {file.told}\n"
        return f"{note}{stages.text(stage)}\n"

    def describe(self, *, json: bool = False) -> str:
        """Return every launch of the plan: named operands and results, attributes, kernel, numerics, the user's line
        and layer.

        The result is readable text, or with `json` the format that `aicf_mlir.reports.describe` documents.
        """
        launches = describe.describe(self._built.stages[self._plans.index(self._active)]["plan"])
        plan = None if (file := self._built.plan_file) is None else file.told
        told = {**self._request.described, "plan": plan}
        return describe.to_json(launches, told) if json else describe.to_table(launches, told)

    def source(self, kernel_id: str) -> str:
        """Return the code of a generated kernel of the plan: LLVM IR on the CPU, CUDA C++ on a GPU. Raises BindError
        for another id.
        """
        return source_of(self._built.stages[self._plans.index(self._active)]["plan"], kernel_id)

    def memory_report(self) -> MemoryReport:
        """Return bytes by arena and by slot, and the exact peak, of the active shape group."""
        return memory_report(self._active.program)

    def stats(self) -> _C.ExecutorStats:
        """Return launches, runs and replays up to here; allocations and live bytes of the device."""
        return self._active.executor.stats()

    def __getattr__(self, name: str) -> Any:
        """Raise StateError for an attribute that a closed step no longer has."""
        if vars(self).get("_state") == "closed":
            raise StateError(f"{self.name}: the step is closed; compile the model again")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def scalars(self) -> list[Scalar]:
        """Return every scalar of the step: name, value, kind (host_scalar, guarded, literal, computed, default), source and
        users.
        """
        stages = self._built.stages[self._plans.index(self._active)]
        guarded = {guard.path: guard.value for guard in self._guards.guards}
        return scalars(stages.get("step") or stages["nn"], guarded, self._built.host_values.keys())

    @property
    def _published(self) -> tuple[str, ...]:
        return () if self._optimizer_state is None else self._optimizer_state.names()

    @property
    def _trained(self) -> checkpoint.Trained:
        built = self._built
        step = built.stages[0]["step"]
        return checkpoint.Trained.of(
            self._store, step, built.optimizers, built.host_values, self._all_schedulers
        )

    def _collected(self) -> checkpoint.Checkpoint:
        """Copy everything that a file holds."""
        return checkpoint.collect(self._trained, self.meta.settings(), self._published, self._stream)

    def _own(self, read: checkpoint.Checkpoint, name: str) -> checkpoint.Checkpoint:
        """Return the part of a file that this process loads; `name` is that of the file."""
        return read

    @property
    def _all_schedulers(self) -> Sequence[LRScheduler]:
        """The LR schedulers that are a part of the step: the schedulers of a loop body."""
        return ()

    @property
    def _stream(self) -> int:
        return current_stream(self._device) if self._is_cuda else 0

    def _select(
        self, batch: StepBatch, *, grow: bool = True, look: bool = False
    ) -> tuple[BoundPlan, Mapping[str, Any]]:
        """Return the plan for a batch, compiled now if `grow` allows it, and the entries of the batch by name.

        A `look` does not count as a use of the plan: the order in which plans make room stays unchanged.
        """
        entries = self._entries(batch)
        alone = len(self._plans) == 1 and not self._sizes.most
        for index, plan in enumerate(self._plans):
            if alone or _fits(plan, entries):
                if not look:
                    self._sizes.use(index)
                return plan, entries
        if self._sizes.most and is_further(self._plans[0], entries):
            if look:
                raise StateError(NOT_COMPILED.format(self.name))
            if not grow:
                raise StateError(NOT_CAPTURED.format(self.name))
            return self._grow(batch, entries), entries
        if len(self._plans) == 1:
            return self._plans[0], entries  # this plan names the expected shapes in its error
        groups = "; ".join(_shapes(plan.inputs) for plan in self._plans)
        raise BindError(
            f"{self.name}: no shape group for {_shapes(entries)}; compiled: {groups}. "
            "Pass drop_last=True to the DataLoader, or compile with this batch size too, B=(…), or with further_sizes=1"
        )

    def _entries(self, batch: StepBatch) -> Mapping[str, Any]:
        """Return the tensors of a batch by name, of all micro-batches if the step has several. Raises BindError."""
        if (count := self._parts) is None:
            return self._named(self.name, batch)
        parts = parts_of(batch, count)
        told = f"{self.name}: micro-batch {{}} of {count}"
        return joined([self._named(told.format(number), part) for number, part in enumerate(parts)])

    def _named(self, told: str, batch: Any) -> Mapping[str, Any]:
        entries = self._structure.names(told, batch)
        self._orders.expect(told, self._structure, batch, entries)
        return self._stored(entries)

    def _stored(self, entries: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the entries in the types that the plans use. Raises BindError if bytes are expected and others come."""
        found = dict[str, Any]()
        for name, spec in self._built.traces[0].inputs.items():
            tensor = entries.get(name)
            if spec.dtype is not BYTES or not isinstance(tensor, torch.Tensor):
                continue
            places = {held.data_ptr() for plan in self._plans for held in plan.inputs.values()}
            if tensor.dtype is not BYTES and tensor.data_ptr() not in places:
                raise BindError(f"input {name!r}: expected {BYTES}, got {tensor.dtype}")
            found[name] = tensor.to(OF_BYTES)
        return {**entries, **found} if found else entries

    def _grow(self, batch: StepBatch, entries: Mapping[str, Any]) -> BoundPlan:
        """Compile a plan for `batch`, load the batch, and drop the least recently used further plan to make room."""
        if self._changed() >= 0:
            self._watched.check()
        index = self._sizes.next_index(len(self._plans))
        request, built = with_further(self._request, self._built, batch, index)
        plan = built.plans[index]
        addresses, _owners = plan.stage(entries)
        if self._is_cuda:
            torch.cuda.synchronize(self._device)  # a dropped plan may still run
        with held():
            plan.executor.load(addresses, self._stream)
            self._request = request
            self._adopt(built)
            self._sizes.use(index)
        return plan

    def _plan_of(self, plan: BoundPlan) -> ProgramOp:
        """Return the text of a plan."""
        return find_program(self._built.stages[self._plans.index(plan)]["plan"])

    def _not_captured(self) -> StateError:
        if self._state == "captured":
            return StateError(NOT_CAPTURED.format(self.name))
        hint = (
            "call capture(batch)"
            if self._state == "warmed"
            else "call train_step(batch), then capture(batch)"
        )
        return StateError(f"{self.name}: replay() before capture() (state {self._state!r}); {hint}")


NOT_COMPILED = "{}: there is no plan for these batch shapes yet; call train_step(batch) with them first"
NOT_CAPTURED = "{}: these batch shapes are not captured yet; call capture(batch) with them"


def _fits(plan: BoundPlan, batch: Mapping[str, Any]) -> bool:
    return all(
        isinstance(t := batch.get(name), torch.Tensor) and t.shape == s.shape
        for name, s in plan.inputs.items()
    )


def _shapes(batch: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {list(getattr(value, 'shape', ()))}" for name, value in batch.items())
