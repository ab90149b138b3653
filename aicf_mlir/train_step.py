"""A compiled train step: the state machine created → warmed → captured → reset, and what may be asked of it."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from aicf_mlir import _C
from aicf_mlir.errors import BindError, DataError, StateError
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.hyperparameters import Hyperparameters
from aicf_mlir.runtime.memory_report import MemoryReport, memory_report
from aicf_mlir.runtime.optimizer_state import OptimizerState
from aicf_mlir.runtime.snapshot import Snapshot, copy_arenas
from aicf_mlir.runtime.status import data_error
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import current_stream
from aicf_mlir.stages import Snapshots

log = logging.getLogger("aicf")
_nvtx: Any = torch.cuda.nvtx

Batch = Mapping[str, torch.Tensor]

SKIPPED = "The step was skipped whole: nothing has changed"


class CompiledTrainStep:
    """One whole train step (forward, loss, backward, optimizer) at fixed addresses.

    Made by `aicf_mlir.compile_train_step` or `model.compile(optimizer=…)`. Several batch shapes share parameters and optimizer
    state; each has its own plan. Every method that runs the step returns the loss as a tensor of its own (0-d).
    """

    def __init__(
        self,
        name: str,
        store: Store,
        plans: list[BoundPlan],
        stages: list[Snapshots],
        hyperparameters: Hyperparameters,
        optimizer: torch.optim.Optimizer,
        optimizer_state: OptimizerState,
        warmup_required: bool,
    ):
        self.name = name
        self.warmup_required = warmup_required
        self.meta = hyperparameters
        self._store = store
        self._plans = plans
        self._active = plans[0]
        self._stages = {id(plan): snapshots for plan, snapshots in zip(plans, stages, strict=True)}
        self._optimizer = optimizer
        self._optimizer_state = optimizer_state
        self._state = "created"
        self._loaded = False
        self._device = plans[0].loss.device
        self._is_cuda = self._device.type == "cuda"

    @property
    def state(self) -> str:
        """One of "created", "warmed", "captured" and "reset"."""
        return self._state

    @property
    def device(self) -> torch.device:
        """Where the step runs."""
        return self._device

    def train_step(self, batch: Batch) -> torch.Tensor:
        """Run one step eagerly (no graph) and return its loss.

        Raises BindError when `batch` does not match a compiled shape group in names, shapes, dtypes or device, or when a
        parameter was moved.
        """
        plan = self._select(batch)
        self._prepare()
        with self._range("train_step"):
            plan.load(batch)
            self._run(plan)
        self._active, self._loaded = plan, True
        self._finish()
        if self._state in ("created", "reset"):
            self._state = "warmed"
        return plan.loss.clone()

    def warmup(self, batch: Batch, runs: int = 1) -> None:
        """Run the step `runs` times and put everything back: parameters and optimizer state stay exactly as they were."""
        if runs < 1:
            raise StateError(f"warmup needs at least one run, got runs={runs}")
        plan = self._select(batch)
        self._prepare()
        before = self.snapshot()
        try:
            with self._range("warmup"):
                plan.load(batch)
                for _ in range(runs):
                    self._run(plan)
            self.synchronize()
        finally:
            self.restore(before)
        self._active, self._loaded = plan, True
        if self._state in ("created", "reset"):
            self._state = "warmed"

    def capture(self, batch: Batch | None = None) -> None:
        """Record the step for the shapes of `batch` into one graph; nothing runs and no parameter changes.

        Without `batch` the inputs of the last step are kept. Raises StateError before a warm-up.
        """
        if self._state in ("created", "reset") and self.warmup_required:
            raise StateError(
                f"{self.name}: capture() before a warm-up (state {self._state!r}); call train_step(batch) or warmup(batch) first"
            )
        if batch is None and not self._loaded:
            raise StateError(f"{self.name}: capture() has no inputs yet; pass a batch")
        plan = self._active if batch is None else self._select(batch)
        if self._state in ("created", "reset") and batch is not None:
            self.warmup(batch)
        self._prepare()
        if batch is not None:
            plan.load(batch)
        log.info("%s: capture begins", self.name)
        with self._range("capture"):
            plan.executor.capture()
        log.info("%s: capture ends, %d launches", self.name, len(plan.program.launches))
        self._active, self._loaded, self._state = plan, True, "captured"

    def replay(self, n: int = 1, inputs: Batch | None = None, sync: bool = False) -> torch.Tensor:
        """Repeat the captured step `n` times with nothing from the host in between; return the loss of the last.

        `inputs` replaces the batch first; `sync` waits until the device is done. Equal, bit for bit, to `n` calls of train_step.
        """
        plan = self._active
        if inputs is not None:
            plan = self._select(inputs)
        if self._state != "captured":
            raise StateError(
                f"{self.name}: replay() before capture() (state {self._state!r}); "
                + (
                    "call train_step(batch), then capture(batch)"
                    if self._state != "warmed"
                    else "call capture(batch)"
                )
            )
        if not plan.executor.captured:
            raise StateError(
                f"{self.name}: these batch shapes are not captured yet; call capture(batch) with them"
            )
        if n.__class__ is not int or n < 1:
            raise BindError(f"{self.name}: replay(n) needs a positive integer, got {n!r}")
        self._prepare()
        if self._is_cuda:
            with self._range("replay"):
                if inputs is not None:
                    plan.load(inputs)
                failed = plan.executor.replay(n, current_stream(self._device))
        else:
            if inputs is not None:
                plan.load(inputs)
            failed = plan.executor.replay(n)
        self._active = plan
        whole = plan.executor.replayed - bool(failed)
        if whole:
            self._finish()
        loss = plan.loss.clone()
        if failed:
            done = f"The step was skipped whole; {whole} of {n} before it are done" if n > 1 else SKIPPED
            raise self._data_error(plan, done)
        if sync:
            self.synchronize()
        return loss

    def synchronize(self) -> None:
        """Wait for the device; raises DataError where a check of a step so far has failed.

        On the CPU there is nothing to wait for, and a step raises at once.
        """
        if not self._is_cuda:
            return
        torch.cuda.synchronize(self._device)
        plan = self._active
        if plan.executor.failed:
            raise self._data_error(plan, SKIPPED)

    def reset(self) -> None:
        """Free the graphs and what capture took; parameters and optimizer state stay."""
        for plan in self._plans:
            plan.executor.reset()
        self._state = "reset"
        log.info("%s: reset", self.name)

    def detach(self) -> None:
        """Stop following `optimizer.load_state_dict`: another compiled step has taken the optimizer over."""
        self._optimizer_state.close()

    def snapshot(self) -> Snapshot:
        """A copy of parameters, optimizer state and meta slots; `restore` brings them back bit for bit."""
        self.synchronize()
        self._prepare()
        arenas = copy_arenas(self._store.arenas, self._store.device, current_stream(self._device))
        return Snapshot(self._store, arenas, self.meta.settings(), self._optimizer_state.published)

    def restore(self, snapshot: object) -> None:
        """Put back everything `snapshot` holds, the param groups' values included."""
        if not isinstance(snapshot, Snapshot) or snapshot.owner is not self._store:
            raise BindError(f"{self.name}: restore() needs a snapshot that this step made")
        self._store.check_tensors()
        stream = current_stream(self._device)
        for role, saved in snapshot.arenas.items():
            self._store.arenas[role].copy_from(saved, stream)
        self.meta.restore_settings(snapshot.settings)
        if snapshot.published and not self._optimizer_state.published:
            self._optimizer_state.publish()
        elif not snapshot.published and self._optimizer_state.published:
            self._optimizer_state.retract()

    @property
    def gradients(self) -> dict[str, torch.Tensor]:
        """Gradients of the last step by parameter name, when compiled with `keep_gradients=True`: views, rewritten each step."""
        return dict(self._active.gradients)

    def planned_kernels(self) -> list[str]:
        """The kernel ids of the plan, in order."""
        return [launch["kernel_id"] for launch in self._active.program.launches]

    def executed_kernels(self) -> list[str]:
        """The kernel ids that the last step ran, in order, as the runtime recorded them."""
        return self._active.executor.trace()

    def ir(self, stage: str = "plan") -> str:
        """The step as text at a stage of the pipeline: "nn", "grad", "step", "lowered", "fused", "kernel", "buffers", "plan"."""
        stages = self._stages[id(self._active)]
        if stage not in stages:
            raise BindError(f"no stage {stage!r}; there are {', '.join(stages)}")
        return f"{stages.text(stage)}\n"

    def memory_report(self) -> MemoryReport:
        """Bytes by arena and by slot, and the exact peak, of the active shape group."""
        return memory_report(self._active.program)

    def stats(self) -> _C.ExecutorStats:
        """Launches, runs and replays so far; allocations and live bytes of the device."""
        return self._active.executor.stats()

    def _select(self, batch: Batch) -> BoundPlan:
        _check_batch(self.name, batch)
        for plan in self._plans:
            if len(self._plans) == 1 or _fits(plan, batch):
                return plan
        groups = "; ".join(_shapes(plan.inputs) for plan in self._plans)
        raise BindError(
            f"{self.name}: no shape group for {_shapes(batch)}; compiled: {groups}. "
            "Pass drop_last=True to the DataLoader, or compile with this batch size too, B=(…)"
        )

    def _prepare(self) -> None:
        self._store.check_tensors()
        self._optimizer_state.refresh()
        self.meta.synchronize()

    def _run(self, plan: BoundPlan) -> None:
        if plan.executor.run(current_stream(self._device)):
            raise self._data_error(plan, SKIPPED)

    def _data_error(self, plan: BoundPlan, done: str) -> DataError:
        """The error of the check that failed; clears it, so that training can go on."""
        stages = self._stages[id(plan)]
        if self._is_cuda:
            done = "That step was skipped whole, and so were those behind it: nothing has changed since"
        return data_error(self.name, plan, (stages["grad"], stages["step"]), done)

    def _finish(self) -> None:
        if not self._optimizer_state.published:
            self._optimizer_state.publish()
            vars(self._optimizer)["_opt_called"] = (
                True  # what LRScheduler asks to know that a step came before it
            )

    @contextmanager
    def _range(self, what: str) -> Generator[None]:
        if not self._is_cuda:
            yield
            return
        with _nvtx.range(f"{self.name}.{what}"):
            yield


def _check_batch(name: str, batch: object) -> None:
    if not isinstance(batch, Mapping):
        raise BindError(f"{name}: a batch is a dict of tensors, got {type(batch).__name__}")


def _fits(plan: BoundPlan, batch: Batch) -> bool:
    return all(
        isinstance(t := batch.get(name), torch.Tensor) and t.shape == s.shape
        for name, s in plan.inputs.items()
    )


def _shapes(batch: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {list(getattr(value, 'shape', ()))}" for name, value in batch.items())
