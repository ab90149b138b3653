"""Live models with plans that somebody has edited, by hand or by chance, and what has to be true of them."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import Batch, Loss, classification, cross_entropy, mlp, mse, regression, to_device, values
from mutated_plans import Mutator
from oracle import same_bits
from torch import nn

from aicf_mlir import AicfError, compile_train_step
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.ir.signature import Key
from aicf_mlir.runtime.program import Slot
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.text.parsing import parse_module
from aicf_mlir.tools.compare import Reference, compare
from aicf_mlir.tools.plan_step import PlanStep


class Gated(nn.Module):
    """tanh(lin(x)) · lin(x): temporaries of one shape that are alive together."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x)) * self.second(x)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


@dataclass
class Trained:
    """A model, what trains it, and the options of its step; made twice it is the same."""

    make: Callable[[], nn.Module] = field(default=lambda: mlp(8, 17, 8, activation=nn.ELU))
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam
    loss_fn: Loss = mse
    batch: Batch = field(default_factory=lambda: regression(5))
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.batch = to_device(self.batch, self.device)
        self.anew()

    def anew(self) -> None:
        """Begin again, with the values of the beginning."""
        self.model = self.make().to(self.device)
        self.trained_by = self.optimizer(self.model)

    def compiled(self, **options: Any) -> CompiledTrainStep:
        """A step over the model as it is."""
        return compile_train_step(
            self.model,
            self.trained_by,
            loss_fn=self.loss_fn,
            **{"example": self.batch, "device": self.device, **self.options, **options},
        )

    def plan(self, stage: str = "plan") -> str:
        """The step's own plan as text; the model is as before."""
        text = self.compiled().ir(stage)
        self.anew()
        return text

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.trained_by)

    def places(self) -> list[tuple[int, bool]]:
        """Where the parameters are, and whether they are trained."""
        return [(p.data_ptr(), p.requires_grad) for p in self.model.parameters()]


MUTATED = (
    Trained,
    lambda: Trained(mlp_of_classes, loss_fn=cross_entropy, batch=classification(5)),
    lambda: Trained(Gated, lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)),
    lambda: Trained(Gated, options={"clip_grad_norm": 0.1, "keep_gradients": True}),
)
"""What the plans of random edits are of."""

OTHER_KERNELS = (Mutator.other_kernel, Mutator.other_op)


def mlp_of_classes() -> nn.Module:
    return mlp(8, 9, 4, activation=nn.ELU)


@cache
def own_plan(index: int) -> tuple[str, dict[str, torch.Tensor]]:
    """The plan of one of `MUTATED`, and what two steps of it train."""
    return MUTATED[index]().plan(), after_two_steps(MUTATED[index]())


def read(step: CompiledTrainStep, slot: Slot) -> Array:
    """What a slot of the step holds, as bytes of its element type."""
    (plan,) = step._plans  # pyright: ignore[reportPrivateUsage]
    data = plan.arenas[slot.arena].read(slot.offset, slot.nbytes)
    return np.frombuffer(data, NUMPY_TYPES[slot.dtype]).reshape(slot.shape)


def named(step: CompiledTrainStep) -> dict[Key, Slot]:
    """The slots of a step by role and name, where they are."""
    (plan,) = step._plans  # pyright: ignore[reportPrivateUsage]
    return {(slot.role, slot.name): slot for slot in plan.bound.slots.values()}


def run_beside_the_tool(text: str, step: CompiledTrainStep, batch: Batch, steps: int = 2) -> str | None:
    """Why `steps` live steps are not what aicf-run and the interpreter make of the plan; None where they are."""
    tool = PlanStep(parse_module(text), "cpu")
    slots = named(step)
    arguments = {
        argument.key: batch[argument.name].numpy()
        if argument.role == "input"
        else read(step, slots[argument.key])
        for argument in tool.arguments
    }
    expected = tool.run(arguments, steps)
    for _ in range(steps):
        step.train_step(batch)
    got = {key: read(step, slots[key]) for key in expected}
    if different := [key for key in expected if got[key].tobytes() != expected[key].tobytes()]:
        return f"{different} are not those of aicf-run"
    reference = Reference.of(lambda arithmetic: tool.interpret(arguments, steps, arithmetic))
    table, agreed = compare(got, reference, tool.names)
    return None if agreed else f"the interpreter disagrees\n{table}"


def run_edit(
    trained: Trained, text: str, expected: Mapping[str, torch.Tensor], *, same_kernels: bool = True
) -> str:
    """`refused`, `equal` or `differs` (as the certificate says), or the fault of an edited plan.

    `expected` is what two steps of the own plan train; `same_kernels` says that an edit that computes the same has its bits.
    """
    trained.anew()
    before, places = trained.values(), trained.places()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edited.mlir"
        path.write_text(text)
        try:
            step = trained.compiled(plan=path)
        except AicfError as error:
            untouched = (
                trained.places() == places
                and not trained.trained_by.state
                and not step_of(trained.trained_by)
            )
            same = all(same_bits(value, before[name]) for name, value in trained.values().items())
            return "refused" if untouched and same else f"fault: something has changed, and {error}"
    if why := run_beside_the_tool(step.ir("plan"), step, trained.batch):
        return f"fault: {why}"
    file = step._built.plan_file  # pyright: ignore[reportPrivateUsage]
    assert file is not None and file.comparison is not None
    comparison = file.comparison
    got = trained.values()
    if not comparison.results and same_kernels and any(not same_bits(got[n], v) for n, v in expected.items()):
        return "fault: it says that it computes the same, and does not"
    certificate = step.capture(trained.batch, verify="bitwise", steps=2)
    if certificate.equal != (not comparison.results):
        return f"fault: {certificate}"
    return "equal" if certificate.equal else "differs"


def after_two_steps(trained: Trained) -> dict[str, torch.Tensor]:
    """What two steps of the own plan train."""
    step = trained.compiled()
    for _ in range(2):
        step.train_step(trained.batch)
    return trained.values()


def step_of(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a compiled step has put itself down in an optimizer."""
    return "_aicf_step" in vars(optimizer)


def run_job(job: str) -> str:
    """The outcome of the edits of a seed."""
    choose = random.Random(int(job))
    index = choose.randrange(len(MUTATED))
    text, expected = own_plan(index)
    mutator = Mutator(choose, parse_module(text))
    same_kernels = True
    for _ in range(choose.choice([1, 1, 2])):
        change = choose.choice(Mutator.CHANGES)
        same_kernels &= change not in OTHER_KERNELS
        with suppress(KeyError, IndexError):
            change(mutator)
    if choose.random() < 0.8:
        with suppress(KeyError, IndexError, AicfError):  # too broken to be repaired
            mutator.repair()
    with np.errstate(all="ignore"):
        return run_edit(MUTATED[index](), str(mutator.module), expected, same_kernels=same_kernels)
