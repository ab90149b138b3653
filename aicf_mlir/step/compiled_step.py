"""A compiled train step: the state machine created → warmed → captured → reset, and its public methods.

Every call is a transaction. One lock for all steps that share memory comes first, and refuses a forked child. Then the
guards and the whole batch are checked. Only then does anything change: the batch is loaded and the step run in one call
that no signal interrupts. Signals wait while Python does the extra work of a first step.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal, overload

import torch

from aicf_mlir.errors import BindError, DataError, GuardError, StateError
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.host.interrupts import held
from aicf_mlir.runtime import checkpoint
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.certificate import Certificate, check_request
from aicf_mlir.runtime.checkpoint_load import prepare
from aicf_mlir.runtime.eager_steps import let_go
from aicf_mlir.runtime.micro_batches import StepBatch
from aicf_mlir.runtime.published_gradients import publish
from aicf_mlir.runtime.ranges import RECORDER, named_range
from aicf_mlir.runtime.release import release_tensors
from aicf_mlir.runtime.snapshot import Snapshot, copied, put_back
from aicf_mlir.runtime.status import data_error
from aicf_mlir.stages import Snapshots
from aicf_mlir.step.examined_step import SKIPPED, ExaminedStep
from aicf_mlir.step.options.loss_scaling import LossScaling
from aicf_mlir.step.options.metrics import GatheredMetrics

log = logging.getLogger("aicf")


class CompiledTrainStep(ExaminedStep):
    """One whole train step (forward, loss, backward, optimizer) at fixed addresses.

    It is made by `aicf_mlir.compile_train_step` or `model.compile(optimizer=…)`. Several batch shapes share parameters
    and optimizer state; each has its own plan. Every method that runs the step returns the loss as a tensor of its own
    (0-d).

    A call raises StateError while another thread is inside a step over the same memory, and in a forked child. It
    raises GuardError when a value that the step was compiled for has changed. After an error or an interrupt the step
    is as before, or some whole steps further.
    """

    _tells_at_once: bool = True
    """Whether a call raises for a failed check as soon as the host sees it."""

    def train_step(self, batch: StepBatch) -> torch.Tensor:
        """Run one step eagerly (no graph) and return its loss.

        `batch` is on the device of the step or on the host, and may be changed when the call returns. Raises BindError when it
        does not match a compiled shape group in names, shapes, dtypes or device, or when a parameter was moved.
        """
        with self._session:
            plan, entries = self._select(batch)
            self._refuse_autocast()
            self._prepare()
            addresses, _owners = plan.stage(entries)
            with self._range("train_step"):
                failed = self._advance(plan, partial(plan.executor.run, self._stream, addresses))
            if failed and self._tells_at_once:
                raise self._data_error(plan, SKIPPED)
            loss = plan.loss.clone()
            if plan.gradients:
                self._publish_gradients(plan)
            return loss

    def warmup(self, batch: StepBatch, runs: int = 1) -> None:
        """Run the step `runs` times and put everything back: parameters and optimizer state stay exactly as they were."""
        with self._session:
            self._warmup(batch, runs)

    def _warmup(self, batch: StepBatch, runs: int) -> None:
        if runs < 1:
            raise StateError(f"warmup needs at least one run, got runs={runs}")
        plan, entries = self._select(batch)
        self._refuse_autocast()
        self._prepare()
        addresses, _owners = plan.stage(entries)
        self._rehearse(plan, addresses, runs)

    def _rehearse(self, plan: BoundPlan, addresses: tuple[int, ...], runs: int) -> None:
        """Run a plan, and put everything back."""
        with held():
            before = self._snapshot(on_host=True)
            try:
                with self._range("warmup"):
                    for _ in range(runs):
                        if plan.executor.run(self._stream, addresses) and self._tells_at_once:
                            raise self._data_error(plan, SKIPPED)
                self._synchronize()
            finally:
                self._restore(before)
            if self._state in ("created", "reset"):
                self._state = "warmed"

    @overload
    def capture(self, batch: StepBatch | None = None) -> None: ...
    @overload
    def capture(
        self, batch: StepBatch | None = None, *, verify: Literal["bitwise"], steps: int = 3
    ) -> Certificate: ...

    def capture(
        self, batch: StepBatch | None = None, *, verify: Literal["bitwise"] | None = None, steps: int = 3
    ) -> Certificate | None:
        """Record the step for the shapes of `batch` into one graph; no parameter changes.

        Without `batch` the inputs of the last step are kept. Raises StateError before a warm-up. With `verify` the
        captured step is examined over `steps` steps, and the certificate states if it matches the plan and the model.
        """
        if verify is not None:
            check_request(verify, steps)
        with self._session:
            if self._state in ("created", "reset") and self.warmup_required:
                raise StateError(
                    f"{self.name}: capture() before a warm-up (state {self._state!r}); "
                    "call train_step(batch) or warmup(batch) first"
                )
            if batch is None and self._session.active < 0:
                raise StateError(f"{self.name}: capture() has no inputs yet; pass a batch")
            plan, entries = (self._active, None) if batch is None else self._select(batch)
            if self._state in ("created", "reset") and batch is not None:
                self._warmup(batch, 1)
            self._refuse_autocast()
            self._prepare()
            addresses, _owners = plan.stage(entries) if entries is not None else ((), [])
            self._ready(plan)
            log.info("%s: capture begins", self.name)
            with held(), self._range("capture"):
                plan.executor.capture()
                plan.executor.load(addresses, self._stream)
                self._state = "captured"
            log.info("%s: capture ends, %d launches", self.name, len(plan.program.launches))
            return None if verify is None else self._certify(plan, steps)

    def replay(self, n: int = 1, inputs: StepBatch | None = None, sync: bool = False) -> torch.Tensor:
        """Repeat the captured step `n` times with nothing from the host in between; return the loss of the last.

        `inputs` replaces the batch first; `sync` waits until the device is done. The result equals, bit for bit, `n`
        calls of train_step. Ctrl-C ends it between two steps.
        """
        with self._session:
            plan, entries = (self._active, None) if inputs is None else self._select(inputs, grow=False)
            if self._state != "captured" or not plan.executor.captured:
                raise self._not_captured()
            if n.__class__ is not int or n < 1:
                raise BindError(f"{self.name}: replay(n) needs a positive integer, got {n!r}")
            steady = self._is_steady
            if not steady or self._changed() >= 0 or self.meta.polled:
                self._prepare()
                steady = self._is_steady
            addresses, _owners = ((), None) if entries is None else plan.stage(entries)
            if not self._is_cuda and not RECORDER._is_profiler_enabled:
                loss = plan.losses.take()
                self._replay(plan, n, addresses, loss.data_ptr(), steady)
                return loss
            with self._range("replay"):
                self._replay(plan, n, addresses, 0, steady)
            loss = plan.loss.clone()
            if sync:
                self._synchronize()
            return loss

    def _replay(self, plan: BoundPlan, n: int, addresses: tuple[int, ...], loss: int, steady: bool) -> None:
        steps = self._session.steps
        try:
            run = plan.executor.replay if steady else partial(self._replay_first, plan)
            failed = run(n, self._stream, addresses, loss)
        except KeyboardInterrupt as interrupt:
            done = self._session.steps - steps
            interrupt.add_note(f"{self.name}: {done} of {n} replays were done, each whole")
            if plan.gradients and done:
                self._publish_gradients(plan)
            raise
        if failed and self._tells_at_once:
            whole = self._session.steps - steps
            done = f"The step was skipped whole; {whole} of {n} before it are done" if n > 1 else SKIPPED
            raise self._data_error(plan, done)
        if plan.gradients:
            self._publish_gradients(plan)

    def _publish_gradients(self, plan: BoundPlan) -> None:
        """Publish the gradients of the last step as `p.grad`; on CUDA only once its checks have passed."""
        if plan.program.status is not None:
            self._synchronize()
        publish(plan.gradients, self._built.traces[self._plans.index(plan)].parameters)

    def _replay_first(
        self, plan: BoundPlan, n: int, stream: int, addresses: tuple[int, ...], loss: int
    ) -> int:
        """Run up to `n` steps; return True if a check failed in the last. One step publishes the state; later ones can
        be interrupted.
        """
        executor, failed, done = plan.executor, 0, 0
        while not failed and done < n and not self._is_steady:
            failed = self._advance(plan, partial(executor.replay, 1, stream, () if done else addresses, loss))
            done += 1
        return failed if failed or done == n else executor.replay(n - done, stream, (), loss)

    def synchronize(self) -> None:
        """Wait for the device. Raises DataError if a check of an earlier step has failed.

        On the CPU there is nothing to wait for, and a step raises at once.
        """
        with self._session:
            self._synchronize()

    def _synchronize(self) -> None:
        if not self._is_cuda:
            return
        torch.cuda.synchronize(self._device)
        plan = self._active
        if plan.executor.failed:
            raise self._data_error(plan, SKIPPED)

    def metrics(self, *, reset: bool = False) -> dict[str, torch.Tensor]:
        """Return the metrics gathered over whole steps; with `reset` they then begin again. Waits for the device."""
        with self._session:
            self._synchronize()
            self._bound.check()
            return self._request.effect(GatheredMetrics).metrics.values(self.name, reset)

    def reset(self) -> None:
        """Free the graphs and the memory that capture took; parameters and optimizer state stay."""
        with self._session, held():
            for plan in self._plans:
                plan.executor.reset()
            self._state = "reset"
        log.info("%s: reset", self.name)

    @cycles_collected()
    def recompile(self) -> None:
        """Compile again for the current layers, modes, values and param groups. Parameters, state and counters stay.

        The step is "created" afterwards, for the batch sizes that were named. If it cannot be compiled, the error says why and
        the step is as before.
        """
        with self._session:  # refuses a forked child, and another thread; binding takes the lock again
            request = self._request.anew()
        request, built = request.built()
        self._ready_to_install(built.stages)
        with built.store.session, held():
            self._request = request
            self._install(built)
        log.info("%s: compiled again", self.name)

    def _ready(self, plan: BoundPlan) -> None:
        """Do what must be done once a call can no longer fail, and before it changes anything."""

    def _ready_to_install(self, stages: Sequence[Snapshots]) -> None:
        """Do the same where a step is compiled again, to these stages."""

    def snapshot(self) -> Snapshot:
        """Return a copy of parameters, optimizer state, host_scalar slots and the buffers that steps update.

        `restore` brings them back bit for bit.
        """
        with self._session:
            self._synchronize()
            self._prepare()
            return self._snapshot()

    def _snapshot(self, on_host: bool = False) -> Snapshot:
        """Take a snapshot; with `on_host`, a copy that is put back soon does not raise the peak device memory."""
        kept = copied(self._store, self._stream, on_host)
        return Snapshot(self._store, *kept, self.meta.settings(), self._published)

    def restore(self, snapshot: object) -> None:
        """Put back everything `snapshot` holds, the param groups' values included."""
        with self._session:
            if not isinstance(snapshot, Snapshot) or snapshot.owner is not self._store:
                raise BindError(f"{self.name}: restore() needs a snapshot that this step made")
            self._bound.check()
            with held():
                self._restore(snapshot)

    def _restore(self, snapshot: Snapshot) -> None:
        put_back(self._store, snapshot, self._stream)
        self.meta.restore_settings(snapshot.settings)
        if self._optimizer_state is not None:
            self._optimizer_state.publish(snapshot.published)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that determines the further training to a file that appears whole or not at all; see `load`.

        All is copied at one moment, between two steps; the file is written afterwards.
        """
        with self._session:
            self._synchronize()
            self._prepare()
            copied = self._collected()
        copied.write(path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore the data that `save` wrote, bit for bit. Raises CheckpointError, with no change, if the file is
        damaged or does not fit.
        """
        trained = self._trained
        read = checkpoint.read(path)
        with self._session:
            self._bound.check()
            name = os.fspath(path)
            prepared = prepare(self._own(read, name), name, trained, self.meta)
            with held(), prepared.written():
                self._restore(prepared.snapshot)
                self._store.give_back()

    def close(self) -> None:
        """Free the memory of the step now. Parameters and `opt.state` keep their values, in torch's own memory.

        Memory that other steps also use stays with them. Every later call but `close` raises StateError.
        """
        if self._state == "closed":
            return
        with self._session, held():
            self._synchronize()
            arenas = self._store.release()
            optimizers = self._built.optimizers
            if self._optimizer_state is not None:
                self._optimizer_state.close(arenas)
            release_tensors([bound.tensor for bound in self._store.bound], optimizers, arenas)
            for optimizer in optimizers:
                let_go(optimizer, self)
            name = self.name
            vars(self).clear()
            self.name, self._state = name, "closed"

    @property
    def _is_steady(self) -> bool:
        """True if a step has nothing to do in Python: state is published, and the state machine keeps its state."""
        published = self._optimizer_state is None or self._optimizer_state.published
        return self._begun and published and self._state in ("warmed", "captured")

    def _advance(self, plan: BoundPlan, run: Callable[[], int]) -> int:
        """Run a step by `run`, one call into C++, and return nonzero if a check of it failed.

        The first step whose update no overflow has skipped publishes the optimizer's state. It waits until its checks
        are known, and signals cannot interrupt it.
        """
        if self._is_steady:
            return run()
        with held():
            skipped = self._request.effect(LossScaling).skipped
            failed = run()
            if self._is_cuda and plan.program.status is not None:
                torch.cuda.synchronize(self._device)
                failed = plan.executor.failed
            if not failed:
                self._begin(self._request.effect(LossScaling).skipped == skipped)
            return failed

    def _begin(self, is_updated: bool) -> None:
        """Do the Python work that follows a first step."""
        self._begun = True
        if is_updated and self._optimizer_state is not None and not self._optimizer_state.published:
            self._optimizer_state.publish()
        for optimizer in self._built.optimizers:  # LRScheduler reads this to know that a step came before it
            vars(optimizer)["_opt_called"] = True
        if self._state in ("created", "reset"):
            self._state = "warmed"

    def _prepare(self) -> None:
        """Follow or refuse all changes since the last step."""
        if self._changed() >= 0:
            self._watched.check()
        state = self._optimizer_state
        if state is not None and not state.published:
            state.reconcile()  # another step of the optimizer may have used memory of entries that have since been removed
        if self.meta.polled:
            self.meta.synchronize()

    def _refuse_autocast(self) -> None:
        """Refuse an active autocast: its casts are no part of the step. A replay repeats the captured work wherever it
        is called.
        """
        if torch.is_autocast_enabled(self._device.type):
            raise GuardError(
                f"{self.name}: called inside torch.autocast, which a compiled step does not follow; call it outside of it"
            )

    def _data_error(self, plan: BoundPlan, done: str) -> DataError:
        """Return the error of the failed check, and clear it, so that training can continue."""
        stages = self._built.stages[self._plans.index(plan)]
        if self._is_cuda:
            done = "That step was skipped whole, and so were those behind it: nothing has changed since"
        whole = stages.get("step") or stages["nn"]  # an evaluation step has neither gradient nor update
        return data_error(self.name, plan, (stages.get("grad") or whole, whole), done)

    def _range(self, what: str) -> AbstractContextManager[None]:
        return named_range(f"{self.name}.{what}", self._is_cuda)
