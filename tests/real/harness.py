"""One case: trained by torch, trained by AICF, judged."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from aicf_mlir import AicfError, compile_eval_step, compile_step, compile_train_step
from tests.real.case import Batch, Make, Work
from tests.real.judge import Run, excess, moved, state

STEPS = 3
"""Each with another batch; one more by replay."""
ROUNDED_RUNS = (4, 2), (24, 2), (32, 16)
"""Of torch from parameters moved by so many units; more where a tensor misses: a gradient that is rounding takes any value."""

Outcome = Literal["works", "refused", "wrong", "crash"]


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    outcome: Outcome
    detail: str
    """How near to what is allowed, the text of the refusal, or the end of the traceback."""


def judged(make: Make, device: str = "cpu") -> Result:
    """Train the case both ways on this device. An exception of eager torch is the case's own defect: it is a crash too."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    try:
        work = seeded(make, device)
        if work.draws:
            return same_twice(make, device)
        truth = eager(make, device)
        if truth.draws:
            return Result("crash", "the step draws random numbers, and the case does not say so")
        try:
            ours = compiled(make, device)
        except AicfError as error:
            return Result("refused", str(error))
        worst, name = 0.0, "nothing"
        for others in rounded(make, device):
            worst, name = excess(ours, truth, others, work.low)
            if worst <= 1:
                break
        return Result("works" if worst <= 1 else "wrong", f"{name}: {worst:.2g} of what is allowed")
    except Exception:  # noqa: BLE001  # whatever it is, it is no refusal
        return Result("crash", traceback.format_exc(limit=-6))


def rounded(make: Make, device: str = "cpu") -> Iterator[list[Run]]:
    """Runs of torch from moved parameters, then with more of them."""
    others: list[Run] = []
    for runs, units in ROUNDED_RUNS:
        others += [eager(make, device, seed, units) for seed in range(len(others), runs)]
        yield others


def same_twice(make: Make, device: str) -> Result:
    """Of a step that draws random numbers: finite losses that differ, and the same bits from the same seed."""
    eager(make, device)
    try:
        first, second = compiled(make, device), compiled(make, device)
    except AicfError as error:
        return Result("refused", str(error))
    equal = torch.equal(first.losses, second.losses) and all(
        torch.equal(value, second.after[name]) for name, value in first.after.items()
    )
    alive = bool(first.losses.isfinite().all()) and len(set(first.losses.tolist())) > 1
    return Result(
        "works" if equal and alive else "wrong", f"losses {first.losses.tolist()}, twice the same: {equal}"
    )


def seeded(make: Make, device: str = "cpu") -> Work:
    """The case anew, the same each time: its model, its batches and the tensors that it makes on this device."""
    if device != "cpu":
        torch.set_default_device(device)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  # packages draw from it
    torch.manual_seed(0)
    work = make()
    work.model.to(device)
    return replace(work, batch=lambda: {name: value.to(device) for name, value in work.batch().items()})


def batches(work: Work) -> list[Batch]:
    torch.manual_seed(1)
    return [work.batch() for _ in range(STEPS)]


def eager(make: Make, device: str = "cpu", seed: int | None = None, units: float = 2) -> Run:
    """Torch's own training; with a `seed`, from where rounding by so many units might have put its parameters."""
    work = seeded(make, device)
    if seed is not None:
        moved(work.model, seed, units)
    return trained(work, eager_step(work), None)


def eager_step(work: Work) -> Callable[[Batch], torch.Tensor]:
    def step(batch: Batch) -> torch.Tensor:
        if work.body is not None:
            return work.body(batch)
        assert work.loss is not None
        loss_of = work.loss

        def closure() -> torch.Tensor:
            for optimizer in work.optimizers:
                optimizer.zero_grad()
            loss = loss_of(work.model, {name: tensor.detach() for name, tensor in batch.items()})
            loss.backward()
            return loss

        if work.evaluates:
            return work.optimizers[0].step(closure)  # type: ignore[arg-type]
        loss = closure()
        for optimizer in work.optimizers:
            optimizer.step()
        return loss

    return step


def compiled(make: Make, device: str = "cpu") -> Run:
    """AICF's training: `STEPS` steps, a capture and a replay of the last batch."""
    work = seeded(make, device)
    example = batches(work)[0]
    if work.evaluates:
        evaluation = compile_eval_step(
            work.model, loss_fn=work.loss, example=example, device=device, keep_gradients=True
        )
        driven: Any = work.optimizers[0].step
        return trained(work, lambda batch: driven(lambda: evaluation.eval_step(batch)), None)
    if work.body is not None:
        step = compile_step(work.body, example=example, device=device)
    else:
        step = compile_train_step(
            work.model, work.optimizers[0], loss_fn=work.loss, example=example, device=device
        )

    def replayed(batch: Batch) -> torch.Tensor:
        step.capture(batch)
        return step.replay()

    return trained(work, step.train_step, replayed)


def trained(
    work: Work, step: Callable[[Batch], torch.Tensor], again: Callable[[Batch], torch.Tensor] | None
) -> Run:
    """Each batch once and the last once more, by `again` if given."""
    before = state(work.model, work.optimizers)
    drawn = batches(work)
    numbers = torch.get_rng_state()
    losses = [step(batch).detach().to("cpu", copy=True) for batch in drawn]
    losses.append((again or step)(drawn[-1]).detach().to("cpu", copy=True))
    draws = not torch.equal(numbers, torch.get_rng_state())
    after = state(work.model, work.optimizers)
    return Run(torch.stack([loss.reshape(()) for loss in losses]), before, after, draws)
