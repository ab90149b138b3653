"""A train step of several processes: each has its own batch, and all have the same parameters after each step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any, Literal, cast

import torch

from aicf_mlir.errors import RankError, StateError
from aicf_mlir.frontend.model import unwrapped
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.certificate import Certificate
from aicf_mlir.runtime.micro_batches import StepBatch
from aicf_mlir.runtime.process_ranks import ProcessRanks, Together
from aicf_mlir.runtime.snapshot import Snapshot
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.examined_step import SKIPPED
from aicf_mlir.step.options.mesh import DataParallel
from aicf_mlir.step.options.seed import Randomness
from aicf_mlir.step.request import Request


class DataParallelStep(CompiledTrainStep):
    """One train step of all ranks of a process group, each with its own batch.

    Every rank makes the same calls in the same order. A call in which one of them fails changes nothing on any: that rank raises
    its error, the others RankError, which names the rank. Ctrl-C during a call is taken once all ranks have ended it.
    """

    _together: Together | None = None

    @classmethod
    def compiled(cls, request: Request) -> DataParallelStep:
        """Compile on all ranks, or on none. The model gets the parameters and buffers that it has on rank 0."""
        model, effect = unwrapped(request.model), request.effect(DataParallel)
        ranks = cast(ProcessRanks, effect.ranks)
        with Together(ranks, request.name, "compile_train_step") as all_of_them:
            tensors = [*model.parameters(), *model.buffers()]
            request.effect(Randomness).state.of_rank(ranks.rank)
            of_model = frozenset(id(buffer) for buffer in model.buffers())
            request = request.with_effect(replace(effect, of_model=of_model))
            all_of_them.reached(digest(_described(model)))
            ranks.shared(tensors)
        with Together(ranks, request.name, "compile_train_step") as all_of_them:
            step = cls(request, request.build())
            all_of_them.reached(step._texts)
        return step

    @property
    def _ranks(self) -> ProcessRanks:
        return cast(ProcessRanks, self._request.effect(DataParallel).ranks)

    def _called(self, what: str) -> Together:
        if self._together is not None:
            raise StateError(f"{self.name}: {what} inside of {self._together.what}")
        return Together(self._ranks, self.name, what)

    @property
    def _texts(self) -> str:
        """A digest of all plans: ranks run the same."""
        return digest("\n".join(stages.text("plan") for stages in self._built.stages))

    def _reached(self, plan: BoundPlan) -> None:
        """Go on once every rank is ready to run this plan."""
        if self._together is not None:
            self._together.reached(f"plan {self._plans.index(plan)} of {self._digest()}")

    def _digest(self) -> str:
        known = vars(self).get("_known_digest")
        if known is None or known[0] is not self._built:
            known = vars(self)["_known_digest"] = (self._built, self._texts)
        return known[1]

    def _all(self, what: str, call: Callable[[], Any]) -> Any:
        """Make a call on all ranks."""
        with self._called(what) as self._together:
            try:
                return call()
            except StateError as error:
                if isinstance(error, RankError) or not self._ranks.lost:
                    raise
                raise RankError(f"{self.name}: {self._ranks.lost}. {SKIPPED}") from error  # it came as a text
            finally:
                self._together = None

    def train_step(self, batch: StepBatch) -> torch.Tensor:
        """Run one step eagerly; see CompiledTrainStep."""
        return self._all("train_step", lambda: super(DataParallelStep, self).train_step(batch))

    def warmup(self, batch: StepBatch, runs: int = 1) -> None:
        """Run the step and put everything back; see CompiledTrainStep."""
        self._all(f"warmup(runs={runs})", lambda: super(DataParallelStep, self).warmup(batch, runs))

    def capture(  # pyright: ignore[reportIncompatibleMethodOverride]  (of its overloads)
        self, batch: StepBatch | None = None, *, verify: Literal["bitwise"] | None = None, steps: int = 3
    ) -> Certificate | None:
        """Record the step; see CompiledTrainStep. Raises StateError for `verify`."""
        if verify is not None:
            raise StateError(f"{self.name}: capture(verify=…) is for a step of one process; leave it out")
        return self._all("capture", lambda: super(DataParallelStep, self).capture(batch))

    def replay(self, n: int = 1, inputs: StepBatch | None = None, sync: bool = False) -> torch.Tensor:
        """Repeat the captured step; see CompiledTrainStep. Ctrl-C is taken after the `n` steps."""
        return self._all(f"replay({n})", lambda: super(DataParallelStep, self).replay(n, inputs, sync))

    def check(self, batch: StepBatch | None = None, *, steps: int = 1, exact: bool = False) -> Any:
        """Raise StateError: a step of several ranks is compared with torch as a step of one process."""
        raise StateError(f"{self.name}: check() is for a step of one process; compile without mesh=")

    def profile(self, n: int = 20, batch: StepBatch | None = None) -> Any:
        """Measure each launch, on all ranks; see ExaminedStep."""
        return self._all(f"profile({n})", lambda: super(DataParallelStep, self).profile(n, batch))

    def recompile(self) -> None:
        """Compile again, on all ranks; see CompiledTrainStep."""
        self._all("recompile", super().recompile)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Restore what `save` wrote, on all ranks or on none; see CompiledTrainStep.

        Every rank may load the file of rank 0; their random numbers stay apart. Raises RankError if the ranks have other
        parameters afterwards: then they have loaded files of different steps.
        """
        self._all("load", lambda: super(DataParallelStep, self).load(path))
        state = self._request.effect(Randomness).state
        seed = None if state.tensor is None else int(state.tensor[0])
        own = digest_of(
            parameter for group in self._built.optimizers[0].param_groups for parameter in group["params"]
        )
        told = self._ranks.told({"seed": seed, "digest": own})
        if len({each["digest"] for each in told}) > 1:
            raise RankError(
                f"{self.name}: the ranks have loaded other parameters; load the same file on all of them"
            )
        if len({each["seed"] for each in told}) == 1:
            state.apart(self._ranks.rank)

    def _restore(self, snapshot: Snapshot) -> None:
        if self._together is not None:
            self._together.reached()
        super()._restore(snapshot)

    def _advance(self, plan: BoundPlan, run: Callable[[], int]) -> int:
        self._reached(plan)
        return super()._advance(plan, run)

    def _looked_at(self, batch: StepBatch | None, what: str) -> Any:
        found = super()._looked_at(batch, what)
        self._reached(found[0])
        return found

    def _rehearse(self, plan: BoundPlan, addresses: tuple[int, ...], runs: int) -> None:
        self._reached(plan)
        super()._rehearse(plan, addresses, runs)

    def _replay(self, plan: BoundPlan, n: int, addresses: tuple[int, ...], loss: int, steady: bool) -> None:
        self._reached(plan)
        super()._replay(plan, n, addresses, loss, steady)


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """A short name of the values of tensors on the host."""
    sha = sha256()
    for tensor in tensors:
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def digest(text: str) -> str:
    """A short name of a text."""
    return sha256(text.encode()).hexdigest()[:16]


def _described(model: torch.nn.Module) -> str:
    """The names, types and shapes of the tensors of a model, and its layers."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return "\n".join(
        [repr(model), *(f"{name} {tensor.dtype} {list(tensor.shape)}" for name, tensor in named)]
    )
