"""A random train step against torch eager: every level of the pipeline, the runtime and its replay."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from pathlib import Path

import torch
from levels import run_text
from mirror import Mirror, read
from models import to_device, to_dtype, values
from oracle import assert_same_bits, fault, root_mean_square, same_bits
from random_programs import STEPS_EACH, Program
from torch import nn

from aicf_mlir import compile_eval_step
from aicf_mlir.frontend.structure import named
from aicf_mlir.optimizers import COUNTERS
from aicf_mlir.runtime.micro_batches import joined
from aicf_mlir.step.eager.roundings import MovedRoundings

LEVELS = (("nn", "plan"), ("step", "kernel"), ("lowered", "plan"), ("fused", "kernel"))
"""Stages whose text a program runs by the interpreter of its dialects, each program by one of these rows."""


def check_train_step(case: Program, device: str) -> None:
    """Fail where the compiled step, a level of its text, its replay or a file of it is not what torch computes."""
    levels = LEVELS[case.seed // STEPS_EACH % len(LEVELS)] if device == "cpu" else ()
    ours = Compiled(case, device, levels)
    start, arguments = ours.step.snapshot(), ours.arguments()
    found = ours.step.check(ours.given[0], steps=1 + case.seed % 2, exact=case.seed % 4 < 2)
    assert found.equal, str(found)

    eager = [ours.train(number) for number in (0, 1)]
    with tempfile.TemporaryDirectory() as folder:
        if case.saves:
            ours.step.save(Path(folder, "file"))
        eager += [ours.train(number) for number in (2, 2)]
        if case.saves:
            other = Compiled(case, device)
            other.step.load(Path(folder, "file"))
            assert_same_bits(other.train(2), eager[2])
    assert ours.step.executed_kernels() == ours.step.planned_kernels(), (
        "executed kernels are not the planned ones"
    )
    references = Torch(case, device)
    references.check("the first step", eager[0], 1)
    references.check("the second step", eager[1], 2)
    references.check("the third step", eager[2], 3)
    counters = {name: value for name, value in eager[0].items() if name.rpartition(".")[2] in COUNTERS}
    for level in levels:
        if level == "nn" and case.options.accumulate is not None:
            continue  # the text of one micro-batch
        updated = run_text(ours.ir[level], arguments)
        for name, kind in case.options.metrics.items():
            if kind == "mean":  # the text has the sum
                updated[f"metrics.{name}"] = updated[f"metrics.{name}"] / case.options.parts
        others = eager[0] if level == "nn" else {**arguments, **counters}  # the forward pass updates nothing
        references.check(f"the interpreter on stage {level!r}", {**eager[0], **others, **updated}, 1)

    ours.step.restore(start)
    ours.step.warmup(ours.given[0])
    for number, (n, batch) in enumerate(((1, 0), (1, 1), (2, 2))):
        if batch == 0 or (batch == 1 and case.sizes > 1):
            ours.step.capture(ours.given[batch])
        replayed = ours.replay(n, batch)
        expected = eager[number if n == 1 else 3]
        assert_same_bits(replayed, {name: value for name, value in expected.items() if name != "evaluation"})
    assert ours.step.executed_kernels() == ours.step.planned_kernels(), (
        "the replayed kernels are not the planned ones"
    )


class Compiled:
    """A program that is compiled."""

    def __init__(self, case: Program, device: str, levels: Sequence[str] = ()):
        self.case, self.device = case, device
        self.model = case.make_model().to(device)
        self.optimizer = case.optimizer(self.model)
        self.step = case.compiled(self.model, self.optimizer, device)
        self.ir = {level: self.step.ir(level) for level in levels}
        self.given = [case.given(number, device) for number in range(len(case.steps))]
        self.evaluation = (
            compile_eval_step(
                self.model,
                loss_fn=case.loss,
                example=[case.nested(case.steps[0][0])],
                device=device,
                precision=case.options.precision,  # pyright: ignore[reportArgumentType]
            )
            if case.evaluates
            else None
        )

    def arguments(self) -> dict[str, torch.Tensor | float]:
        """What the text of the step for the first batch takes, by name."""
        step, case = self.step, self.case
        parts = [named(part)[0] for part in (case.nested(batch) for batch in case.steps[0])]
        store = step._store  # pyright: ignore[reportPrivateUsage]
        held = {
            name: store.view(role, name).clone()
            for role, name in store.slots
            if role in ("param", "buffer", "state")
        }
        return {**held, **(parts[0] if case.options.accumulate is None else joined(parts)), **step.meta}

    def train(self, number: int) -> dict[str, torch.Tensor]:
        """One of the steps, eagerly, and everything there is behind it."""
        return self.read(self.step.train_step(self.given[number]), evaluated=True)

    def replay(self, n: int, number: int) -> dict[str, torch.Tensor]:
        """The same by replay; nothing is evaluated in between."""
        return self.read(self.step.replay(n, inputs=self.given[number]), evaluated=False)

    def read(self, loss: torch.Tensor, evaluated: bool) -> dict[str, torch.Tensor]:
        """Loss, parameters, states, outputs and all else that a step keeps, on the CPU."""
        found = {
            "loss": loss.cpu(),
            **held_values(self.model, self.optimizer),
            **read(self.step, self.case.options),
        }
        if self.evaluation is not None and evaluated:
            first = self.case.nested(to_device(self.case.steps[0][0], self.device))
            found["evaluation"] = self.evaluation.eval_step(first).cpu()
        return found


def held_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """`values` and the Python numbers among the states."""
    found = values(model, optimizer)
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, (int, float)):
                found[f"{name}.{key}"] = torch.tensor(float(value))
    return found


def linear_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """What is compared of a tensor: of squares their roots, since squares of errors differ by more."""
    return torch.sqrt if name.endswith("_sq") else torch.Tensor.detach


class Torch:
    """The same steps in torch eager: in float64, in the program's dtype, and in that dtype with parameters, inputs and what
    each op of forward and backward rounds moved by up to two units in the last place of their own type: how far rounding
    alone carries this program. A mean far larger than what is left of its terms is such a result, and the gradient of a
    bias in front of that norm nothing else. These are made where it is asked for: most programs are right without.
    """

    PERTURBED = 16

    CANCELLED = 4.0
    """Units in the last place, of the largest tensor of a kind, that terms which cancel may leave: to nothing at all in
    torch, where there are two of them."""

    def __init__(self, case: Program, device: str):
        self.case = case
        self.device = "cpu" if case.options.low is None else device
        """Where steps in the program's type run: under autocast where the compiled one does, for its rules are others there."""
        self.run = _train(case, case.dtype, None, self.device)
        counts = [int(found.get("loss_scale.skipped", 0)) for found in self.run]
        self.skipped = [after > before for before, after in itertools.pairwise((0, *counts))]
        """Which steps overflow in the precision of the program."""
        self.reference = _train(case, torch.float64, None, "cpu", self.skipped)
        parameters = {name: each.detach().double() for name, each in case.make_model().named_parameters()}
        self.start = {**parameters, **{f"ema.{name}": each for name, each in parameters.items()}}

    @cached_property
    def moved(self) -> list[list[dict[str, torch.Tensor]]]:
        """The runs beside the given one."""
        return [_train(self.case, self.case.dtype, seed, self.device) for seed in range(self.PERTURBED)]

    def why(self, name: str, ours: torch.Tensor, step: int) -> str | None:
        """What is wrong with a tensor after a step."""
        if not self.run[step][name].is_floating_point():
            same = torch.equal(ours, self.run[step][name])
            return None if same else f"{ours.tolist()}, torch has {self.run[step][name].tolist()}"
        if name.startswith("metrics."):  # torch's are gathered in float64 from outputs of the program's type
            ours = ours.to(self.case.dtype)
        linear = linear_of(name)
        ours, reference, run = (
            linear(value) for value in (ours, self.reference[step][name], self.run[step][name].to(ours.dtype))
        )
        # Where torch overflows on the way and we do not, float64 alone tells what is right; and where both are infinite and torch
        # has NaN, as its gelu of infinity on CPUs with vectors.
        as_exact = (ours.isfinite() & reference.isfinite()) | (ours.double() == reference)
        overflown = as_exact & ~run.isfinite()
        run = torch.where(overflown, reference.to(run.dtype), run)
        if fault(ours, [run], reference) is None:
            return None
        # a run that skips a step for an overflow has no state yet
        moved = [linear(moved[step][name]) for moved in self.moved if name in moved[step]]
        noise = self.CANCELLED * torch.finfo(ours.dtype).eps * self.scale(name, step)
        if not all(same_bits(each.to(run.dtype), run) for each in moved):  # of 16 bits, only what they change
            noise = max(noise, self.CANCELLED * self.case.unit * self.scale(name, step, changes=True))
        return fault(ours, [run, *moved], reference, noise)

    def scale(self, name: str, step: int, changes: bool = False) -> float:
        """The largest root mean square of the tensors of its kind in float64, or of what has changed of them."""
        kind, linear = name.rpartition(".")[2], linear_of(name)
        return max(
            root_mean_square(value[value.isfinite()])
            for other, held in self.reference[step].items()
            if other.rpartition(".")[2] == kind and held.is_floating_point()
            for value in [linear(held - self.start[other] if changes and other in self.start else held)]
        )

    def check(self, what: str, ours: Mapping[str, torch.Tensor], steps: int) -> None:
        """Compare with torch after `steps` steps; extra names in `ours` are not looked at."""
        expected = self.reference[steps - 1]
        missing = sorted(set(expected) - set(ours))
        assert not missing, f"{what}: {missing} is missing"
        faults = [f"{name}: {why}" for name in expected if (why := self.why(name, ours[name], steps - 1))]
        assert not faults, f"{what} is wrong\n" + "\n".join(faults)


def _train(
    case: Program, dtype: torch.dtype, perturbation: int | None, device: str, skipped: Sequence[bool] = ()
) -> list[dict[str, torch.Tensor]]:
    """Everything there is after each step; with `skipped` it is said which of them have an overflow."""
    model = case.make_model().to(device, dtype)
    generator = torch.Generator().manual_seed(perturbation or 0)

    def perturb(tensor: torch.Tensor) -> torch.Tensor:
        if perturbation is None or not tensor.is_floating_point():
            return tensor
        unit = torch.randint(-2, 3, tensor.shape, generator=generator) * torch.finfo(tensor.dtype).eps
        return tensor * (1 + unit.to(tensor.device, tensor.dtype))

    def summed_otherwise(gradient: torch.Tensor) -> torch.Tensor:
        """With up to two units of the largest element, as another order of its sums leaves where they cancel; zeros stay.

        All gradients come from what is computed in, 16 bits under autocast.
        """
        unit = torch.randint(-2, 3, gradient.shape, generator=generator) * case.unit
        return gradient + torch.where(gradient == 0, 0, unit.to(device, dtype) * gradient.abs().max())

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(perturb(parameter))
    optimizer = case.optimizer(model)
    around = nullcontext if perturbation is None else partial(MovedRoundings, perturb)
    mirror = Mirror(model, optimizer, case.loss, case.options, around)
    after: list[dict[str, torch.Tensor]] = []
    for number, parts in enumerate(case.steps):
        moved = [
            case.nested(
                {name: perturb(tensor) for name, tensor in to_device(to_dtype(batch, dtype), device).items()}
            )
            for batch in parts
        ]
        loss = mirror.step(
            moved,
            summed_otherwise if perturbation is not None else None,
            any(skipped[number : number + 1]),
        )
        found = {"loss": loss, **held_values(model, optimizer), **mirror.read()}
        if case.evaluates:
            with torch.no_grad(), case.options.autocast(device), around():
                answer = case.loss(model, case.nested(to_device(to_dtype(case.steps[0][0], dtype), device)))
            found["evaluation"] = answer[0] if case.loss.tells else answer
        after.append({name: value.cpu() for name, value in found.items()})
    return after
