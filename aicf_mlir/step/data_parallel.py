"""A train step of several processes: each has its own batch, and all have the same parameters after each step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Literal, Self, cast
from weakref import WeakKeyDictionary

import torch
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.collective_rules import COLLECTIVES
from aicf_mlir.errors import DataError, RankError, StateError
from aicf_mlir.frontend.model import unwrapped
from aicf_mlir.frontend.reads import named_modules
from aicf_mlir.ir.division import OWN_TEXT
from aicf_mlir.ir.roles import KEPT_ROLES
from aicf_mlir.ir.signature import steps
from aicf_mlir.passes.divide_updates import parts_of, trained_groups
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.certificate import Certificate, FailedCheck, certify
from aicf_mlir.runtime.checkpoint import Checkpoint
from aicf_mlir.runtime.divided_checkpoint import part_of, whole
from aicf_mlir.runtime.homes import home_of
from aicf_mlir.runtime.micro_batches import StepBatch
from aicf_mlir.runtime.process_ranks import ProcessRanks, Together, digest, digest_of
from aicf_mlir.runtime.snapshot import Snapshot
from aicf_mlir.stages import Snapshots
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.examined_step import SKIPPED
from aicf_mlir.step.options.mesh import DataParallel, shared_by, unfollowed
from aicf_mlir.step.options.metrics import GatheredMetrics
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.request import Request

UNCOMPARED = "the step has several ranks; compile one without mesh= to compare with torch"

FAILED = "failed: "

OF_RANKS = ("divide-updates", "divide-gradients")
"""The passes that make another text of each rank."""


class DataParallelStep(CompiledTrainStep):
    """One train step of all ranks of a process group, each with its own batch.

    Every rank makes the same calls in the same order. A call in which one of them fails changes nothing on any: that rank raises
    its error, the others RankError, which names the rank. Ctrl-C during a call is taken once all ranks have ended it.
    """

    _together: Together | None = None
    _takes_signals = False

    @classmethod
    def compiled(cls, ranks: ProcessRanks, name: str, make: Callable[[], Request]) -> tuple[Self, Request]:
        """Compile what `make` requests on all ranks, or on none. What they share gets the values that it has on rank 0."""
        with Together(ranks, name, "compile_train_step") as call:
            request = make()
            request.effect(Randomness).state.of_rank(ranks.rank)
            metrics = request.effect(GatheredMetrics).metrics
            shared = partial(shared_by, request.model, request.optimizers, lambda: metrics.tensors)
            request = request.with_effect(replace(request.effect(DataParallel), ranks=ranks, shared=shared))
            call.reached(digest(_described(unwrapped(request.model))))
            ranks.meet()
            if request.device.type == "cuda":
                ranks.use_gpu(request.device)
            ranks.shared(shared())
        with Together(ranks, name, "compile_train_step") as call:
            step = cls(request, request.build())
            step._expect_state_of_no_other_step()
            call.reached(step._texts(step._built.stages))
        so = "The optimizers have other state or numbers; load the same on all ranks before compiling"
        with Together(ranks, name, "compile_train_step", so) as call:
            call.reached(digest_of(step._alike(*step._kept_alike)))
        for optimizer, parameter in step._state_of_others():
            del optimizer.state[parameter]
        return step, request

    def __init__(self, *given: Any):
        """Take what a CompiledTrainStep takes."""
        self._turn = Lock()
        self._owned: tuple[object, set[int]] = (None, set())
        """What was built last, and the parameters of it that this rank updates with a divided optimizer, by `id`."""
        self._digests: WeakKeyDictionary[BoundPlan, str] = WeakKeyDictionary()
        super().__init__(*given)

    @property
    def _ranks(self) -> ProcessRanks:
        return cast(ProcessRanks, self._request.effect(DataParallel).ranks)

    def _alike(self, *roles: str) -> list[torch.Tensor]:
        """The memory of these roles that all ranks have alike, in one order.

        Each rank has for itself random numbers, metrics, and what the loss function reads besides the model and what is trained.
        """
        store = self._store
        shared = {tensor.data_ptr() for tensor in self._request.effect(DataParallel).shared()}
        views = [(key[0], store.view(*key)) for key in sorted(store.slots) if key[0] in roles]
        return [view for role, view in views if role not in ("param", "buffer") or view.data_ptr() in shared]

    @property
    def _is_divided(self) -> bool:
        return self._request.effect(DataParallel).zero > 0

    @property
    def _kept_alike(self) -> Sequence[str]:
        """The roles of memory that outlives a step and is the same on all ranks."""
        return ("param", "buffer") if self._is_divided else KEPT_ROLES

    def _texts(self, stages: Sequence[Snapshots]) -> str:
        """Return a digest of all plans: ranks run the same, but for what a divided step has of each rank, and one that exchanges
        by itself, whose text may have the number of a rank.
        """
        asked = {
            name: options
            for name, options in self._request.passes(str(self._device)).items()
            if name not in OF_RANKS
        }
        said = [repr(asked)]
        for each in stages:
            if buckets := buckets_of(each["grad"]):
                said += [*buckets, collectives_of(each["plan"])]
            elif self._is_divided:
                said += [each.text("nn"), collectives_of(each["plan"])]
            else:
                said.append(each.text("plan"))
        return digest("\n".join(said))

    def _numbers(self) -> object:
        """Return the numbers of the host with which a step runs, in a form to compare."""
        if not self._is_divided:
            return sorted(self.meta.written.items())
        return [
            [
                (key, digest_of([each]) if isinstance(each, torch.Tensor) else each)
                for key, each in own.items()
            ]
            for own in self.meta.settings()
        ]

    def _divided(self) -> tuple[list[ParamGroup], list[list[str]]]:
        """Return the param groups with all parameters, and the names of the parameters of each rank."""
        function = next(iter(steps(self._built.stages[0]["grad"])))
        return trained_groups(function), parts_of(function, self._ranks.count)

    def _state_of_others(self) -> list[tuple[torch.optim.Optimizer, torch.Tensor]]:
        """The parameters of which an optimizer here has state though another rank updates them: no step would update it."""
        if not self._is_divided:
            return []
        if self._owned[0] is not self._built:
            names = self._divided()[1][self._ranks.rank]
            self._owned = self._built, {id(self._built.traces[0].parameters[name]) for name in names}
        own = self._owned[1]
        return [
            (each, p)
            for each in self._built.optimizers
            for p, entries in each.state.items()
            if entries and id(p) not in own
        ]

    def _expect_state_of_no_other_step(self) -> None:
        """Raise StateError if a step that is there updates state that this one would let go."""
        entries = (value for each, p in self._state_of_others() for value in each.state[p].values())
        if any(isinstance(value, torch.Tensor) and home_of(value) is not None for value in entries):
            raise StateError(
                f"{self.name}: another step has the optimizer's state of parameters that another rank updates with"
                f" zero={self._request.effect(DataParallel).zero}; compile with a new optimizer, and load() a checkpoint"
            )

    def _expect_own_state(self) -> None:
        """Raise StateError if an optimizer has got state of parameters of other ranks since the step was compiled."""
        if self._state_of_others():
            raise StateError(
                f"{self.name}: the optimizer has got state of parameters that another rank updates with"
                f" zero={self._request.effect(DataParallel).zero}; use load() of the step, or compile again"
            )

    def _reached(self, plan: BoundPlan) -> None:
        """Go on once every rank is ready to run the text of this plan with the same numbers of the host."""
        if self._together is not None and not self._together.is_reached:
            self._expect_own_state()
            if plan not in self._digests:
                self._digests[plan] = self._texts([self._built.stages[self._plans.index(plan)]])
            numbers = digest(repr(self._numbers()))
            failed = "failed" if plan.executor.failed else ""
            self._together.reached(f"plan {self._digests[plan]} and numbers {numbers}", failed)
            if self._together.news:  # a rank has seen that a check failed; they all have the same status
                super()._synchronize()

    def _all(self, what: str, call: Callable[[], Any]) -> Any:
        """Make a call on all ranks."""
        if not self._turn.acquire(blocking=False):
            raise StateError(
                f"{self.name}: this step is in use by another thread; wait for its call to return"
            )
        try:
            with Together(self._ranks, self.name, what) as self._together:
                if why := unfollowed(self._request.model):
                    raise StateError(f"{self.name}: {why}")
                return call()
        except (DataError, StateError) as error:
            if isinstance(error, RankError) or not self._ranks.lost:
                raise
            raise RankError(f"{self.name}: {self._ranks.lost}. {SKIPPED}") from error  # it came as a text
        finally:
            self._together = None
            self._turn.release()

    def train_step(self, batch: StepBatch) -> torch.Tensor:
        """Run one step eagerly; see CompiledTrainStep."""
        return self._all("train_step", lambda: super(DataParallelStep, self).train_step(batch))

    def warmup(self, batch: StepBatch, runs: int = 1) -> None:
        """Run the step and put everything back; see CompiledTrainStep."""
        self._all(f"warmup(runs={runs!r})", lambda: super(DataParallelStep, self).warmup(batch, runs))

    def capture(  # pyright: ignore[reportIncompatibleMethodOverride]  (of its overloads)
        self, batch: StepBatch | None = None, *, verify: Literal["bitwise"] | None = None, steps: int = 3
    ) -> Certificate | None:
        """Record the step; see CompiledTrainStep.

        With `verify` all ranks are examined together. A certificate says what was found on its rank, or on which other.
        """
        if verify is None:
            return self._all("capture", lambda: super(DataParallelStep, self).capture(batch))
        what = f"capture(verify={verify!r}, steps={steps!r})"
        return self._all(
            what, lambda: super(DataParallelStep, self).capture(batch, verify=verify, steps=steps)
        )

    def _certify(self, plan: BoundPlan, steps: int) -> Certificate:
        """Return the certificate of this rank; where it has no finding, the first one of the others stands in it."""

        def told(text: str) -> list[str]:
            texts = [each["text"] for each in self._ranks.told({"text": text})]
            if (failed := next((each for each in texts if each.startswith(FAILED)), None)) is not None:
                raise RankError(f"{self.name}: no certificate: another rank has {failed}")
            return texts

        try:
            mine = certify(replace(self._subject(plan), told=told), steps, (), UNCOMPARED)
        except BaseException as error:
            with suppress(RankError):  # the others do not wait for this rank
                self._ranks.told({"text": f"{FAILED}{type(error).__name__}: {error}"})
            raise
        found = told("" if mine.equal else f"{mine.findings[0].check}\n{mine.findings[0].message}")
        rank = next((rank for rank, each in enumerate(found) if each), None)
        if not mine.equal or rank is None:
            return mine
        check, message = found[rank].split("\n", 1)
        return replace(mine, findings=(FailedCheck(check, f"on rank {rank}: {message}"),))

    def replay(self, n: int = 1, inputs: StepBatch | None = None, sync: bool = False) -> torch.Tensor:
        """Repeat the captured step; see CompiledTrainStep. Ctrl-C is taken after the `n` steps."""
        what = f"replay({n})" if n.__class__ is int else f"replay of {type(n).__name__}"
        return self._all(what, lambda: super(DataParallelStep, self).replay(n, inputs, sync))

    def check(self, batch: StepBatch | None = None, *, steps: int = 1, exact: bool = False) -> Any:
        """Raise StateError: a step of several ranks is compared with torch as a step of one process."""
        raise StateError(f"{self.name}: check() is for a step of one process; compile without mesh=")

    def profile(self, n: int = 20, batch: StepBatch | None = None) -> Any:
        """Measure each launch, on all ranks; see ExaminedStep."""
        return self._all(f"profile({n!r})", lambda: super(DataParallelStep, self).profile(n, batch))

    def recompile(self) -> None:
        """Compile again, on all ranks or on none; see CompiledTrainStep."""
        self._all("recompile", super().recompile)

    def close(self) -> None:
        """Free the memory of the step now; see CompiledTrainStep. The other ranks cannot go on without this one."""
        if self._state != "closed":
            with suppress(StateError):
                self._all("close", lambda: None)
            super().close()

    def restore(self, snapshot: object) -> None:
        """Put back a snapshot, on all ranks; see CompiledTrainStep. Raises RankError if they differ afterwards."""
        self._all("restore", lambda: super(DataParallelStep, self).restore(snapshot))
        self._expect_alike("restored")

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what `save` wrote, on all ranks or on none; see CompiledTrainStep.

        Every rank may load the file of rank 0; their random numbers stay apart. Raises RankError if the ranks differ
        afterwards: then they have loaded files of different steps.
        """
        self._all("load", lambda: super(DataParallelStep, self).load(path))
        self._expect_alike("loaded")
        state = self._request.effect(Randomness).state
        if state.tensor is not None:
            told: list[dict[str, str]] = []
            mine = {"seed": str(int(state.tensor[0]))}
            self._all("the seeds", lambda: (self._ready(self._active), told.extend(self._ranks.told(mine))))
            if len({each["seed"] for each in told}) == 1:
                state.apart(self._ranks.rank)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file as CompiledTrainStep does. With a divided optimizer all ranks call it together, and each file is whole."""
        if self._is_divided:
            self._all("save", lambda: super(DataParallelStep, self).save(path))
        else:
            super().save(path)

    def _collected(self) -> Checkpoint:
        copied = super()._collected()
        if not self._is_divided:
            return copied
        self._reached(self._active)
        return whole(copied, *self._divided(), self._ranks)

    def _own(self, read: Checkpoint, name: str) -> Checkpoint:
        if not self._is_divided:
            return read
        groups, parts = self._divided()
        return part_of(read, name, groups, parts[self._ranks.rank])

    def _expect_alike(self, done: str) -> None:
        self.meta.read_back()
        so = f"They have {done} different states, and must not go on; take the same on all of them"
        with Together(self._ranks, self.name, "the comparison", so) as call:
            call.reached(digest_of(self._alike(*self._kept_alike)))

    def _restore(self, snapshot: Snapshot) -> None:
        if self._together is not None:
            self._together.reached()
        super()._restore(snapshot)

    def _ready(self, plan: BoundPlan) -> None:
        self._reached(plan)

    def _ready_to_install(self, stages: Sequence[Snapshots]) -> None:
        if self._together is not None:
            self._together.reached(self._texts(stages))

    def _looked_at(self, batch: StepBatch | None, what: str) -> Any:
        found = super()._looked_at(batch, what)
        self._reached(found[0])
        return found

    def _rehearse(self, plan: BoundPlan, addresses: tuple[int, ...], runs: int) -> None:
        self._reached(plan)
        super()._rehearse(plan, addresses, runs)

    def _advance(self, plan: BoundPlan, run: Callable[[], int]) -> int:
        self._reached(plan)
        is_awaited = not self._is_steady
        failed = super()._advance(plan, run)
        if failed and is_awaited:
            raise self._data_error(plan, SKIPPED)
        return failed

    @property
    def _tells_at_once(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return not self._is_cuda  # the host of another rank may see it a call later

    def _synchronize(self) -> None:
        if self._together is not None:
            super()._synchronize()
        elif self._is_cuda:
            torch.cuda.synchronize(self._device)
            if self._active.executor.failed:
                raise StateError(
                    f"{self.name}: a check of an earlier step has failed; the next call of all ranks tells which"
                )

    def _replay(self, plan: BoundPlan, n: int, addresses: tuple[int, ...], loss: int, steady: bool) -> None:
        self._reached(plan)
        super()._replay(plan, n, addresses, loss, steady)


def collectives_of(module: ModuleOp) -> str:
    """Return the collectives of a plan, in their order, with the types of what they exchange."""
    (program,) = (op for op in module.ops if isinstance(op, ProgramOp))
    slots = program.slots
    found = [launch for launch in program.launches if launch.op.data in COLLECTIVES]
    return "\n".join(f"{launch.op.data} {launch.attrs} {slots[launch.writes[0]].spec}" for launch in found)


def buckets_of(module: ModuleOp) -> list[str]:
    """Return which gradients each exchange has, for functions of which each rank may have a text of its own."""
    found = [function.attributes.get(OWN_TEXT) for function in steps(module)]
    return [str(names) for names in found if names is not None]


def _described(model: torch.nn.Module) -> str:
    """The layers of a model, and the names, types and shapes of its tensors."""
    named = [*model.named_parameters(), *model.named_buffers()]
    layers = [f"{name}: {type(module).__name__}" for name, module in named_modules(model)]
    return "\n".join([*layers, *(f"{name} {tensor.dtype} {list(tensor.shape)}" for name, tensor in named)])
