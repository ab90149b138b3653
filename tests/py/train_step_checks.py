"""A random train step against torch eager: every level of the pipeline, the runtime and its replay."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import torch
from levels import run_text
from models import to_device, to_dtype, values
from oracle import assert_same_bits, fault, root_mean_square
from random_programs import STEPS_EACH, Program
from torch import nn

from aicf_mlir.compile import compile_train_step
from aicf_mlir.compiled_step import CompiledTrainStep
from aicf_mlir.optimizers import COUNTERS

LEVELS = (("nn", "plan"), ("step", "kernel"), ("lowered", "plan"), ("fused", "kernel"))
"""Stages whose text a program runs by the interpreter of its dialects, each program by one of these rows."""


def check_train_step(case: Program, device: str) -> None:
    """Fail where the compiled step, a level of its text, or its replay is not what torch computes."""
    levels = LEVELS[case.seed // STEPS_EACH % len(LEVELS)] if device == "cpu" else ()
    model = case.make_model().to(device)
    optimizer = case.optimizer(model)
    batches = [to_device(batch, device) for batch in case.batches]
    step = compile_train_step(
        model, optimizer, loss_fn=case.loss, example=batches[0], device=device, **vars(case.options)
    )
    start, parameters = step.snapshot(), values(model, optimizer)
    arguments = {**parameters, **dict(model.named_buffers()), **batches[0], **step.meta}

    eager = [_eager_step(step, batch, model, optimizer) for batch in (*batches, batches[-1])]
    assert step.executed_kernels() == step.planned_kernels(), "executed kernels are not the planned ones"
    references = Torch(case)
    references.check("the first step", eager[0], 1)
    references.check("the third step", eager[2], 3)
    counters = {name: value for name, value in eager[0].items() if name.rpartition(".")[2] in COUNTERS}
    for level in levels:
        updated = run_text(step.ir(level), arguments)
        others = eager[0] if level == "nn" else {**parameters, **counters}  # the forward pass updates nothing
        references.check(f"the interpreter on stage {level!r}", {**others, **updated}, 1)

    step.restore(start)
    step.capture(batches[0])
    for i, (n, batch) in enumerate(((1, batches[0]), (1, batches[1]), (2, batches[2]))):
        loss = step.replay(n, inputs=batch)
        assert_same_bits({"loss": loss.cpu(), **values(model, optimizer)}, eager[i if n == 1 else 3])
    assert step.executed_kernels() == step.planned_kernels(), "the replayed kernels are not the planned ones"


def _eager_step(
    step: CompiledTrainStep,
    batch: Mapping[str, torch.Tensor],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, torch.Tensor]:
    loss = step.train_step(batch)
    return {"loss": loss.cpu(), **values(model, optimizer)}


class Torch:
    """The same steps in torch eager: in float64, in the program's dtype, and in that dtype with parameters
    and inputs moved by up to two units in the last place: how far rounding alone carries this program. These are
    made where it is asked for: most programs are right without.
    """

    PERTURBED = 16

    CANCELLED = 4.0
    """Units in the last place, of the largest tensor of a kind, that terms which cancel may leave: to nothing at all in
    torch, where there are two of them."""

    def __init__(self, case: Program):
        self.case = case
        self.reference = _train(case, torch.float64, None)
        self.run = _train(case, case.dtype, None)

    @cached_property
    def moved(self) -> list[list[dict[str, torch.Tensor]]]:
        """The runs beside the given one."""
        return [_train(self.case, self.case.dtype, seed) for seed in range(self.PERTURBED)]

    def why(self, name: str, ours: torch.Tensor, step: int) -> str | None:
        """What is wrong with a tensor after a step."""
        linear = (
            torch.sqrt if name.endswith("_sq") else torch.Tensor.detach
        )  # squares of errors differ by more
        ours, reference, run = (
            linear(value) for value in (ours, self.reference[step][name], self.run[step][name])
        )
        # Where torch overflows on the way and we do not, float64 alone tells what is right.
        overflown = ours.isfinite() & reference.isfinite() & ~run.isfinite()
        run = torch.where(overflown, reference.to(run.dtype), run)
        if fault(ours, [run], reference) is None:
            return None
        kind = name.rpartition(".")[2]
        scales = [
            root_mean_square(linear(value))
            for other, value in self.reference[step].items()
            if other.rpartition(".")[2] == kind
        ]
        noise = self.CANCELLED * torch.finfo(self.case.dtype).eps * max(scales)
        return fault(ours, [run, *(linear(moved[step][name]) for moved in self.moved)], reference, noise)

    def check(self, what: str, ours: Mapping[str, torch.Tensor], steps: int) -> None:
        """Compare with torch after `steps` steps; extra names in `ours` are not looked at."""
        expected = self.reference[steps - 1]
        missing = sorted(set(expected) - set(ours))
        assert not missing, f"{what}: {missing} is missing"
        faults = [f"{name}: {why}" for name in expected if (why := self.why(name, ours[name], steps - 1))]
        assert not faults, f"{what} is wrong\n" + "\n".join(faults)


def _train(case: Program, dtype: torch.dtype, perturbation: int | None) -> list[dict[str, torch.Tensor]]:
    """Parameters, optimizer state and loss after each step."""
    model = case.make_model().to(dtype)
    generator = torch.Generator().manual_seed(perturbation or 0)

    def perturb(tensor: torch.Tensor) -> torch.Tensor:
        if perturbation is None or not tensor.is_floating_point():
            return tensor
        unit = torch.randint(-2, 3, tensor.shape, generator=generator) * torch.finfo(dtype).eps
        return tensor * (1 + unit.to(dtype))

    def summed_otherwise(gradient: torch.Tensor) -> torch.Tensor:
        """With up to two units of the largest element, as another order of its sums leaves where they cancel; zeros stay."""
        unit = torch.randint(-2, 3, gradient.shape, generator=generator) * torch.finfo(dtype).eps
        return gradient + torch.where(gradient == 0, 0, unit.to(dtype) * gradient.abs().max())

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(perturb(parameter))
    optimizer = case.optimizer(model)
    after: list[dict[str, torch.Tensor]] = []
    for batch in case.batches:
        moved = {name: perturb(tensor) for name, tensor in to_dtype(batch, dtype).items()}
        optimizer.zero_grad()
        loss = case.loss(model, moved)
        loss.backward()
        for parameter in model.parameters():
            if perturbation is not None and parameter.grad is not None:
                parameter.grad.copy_(summed_otherwise(parameter.grad))
        case.options.apply(model)
        optimizer.step()
        after.append({"loss": loss.detach(), **values(model, optimizer)})
    return after
