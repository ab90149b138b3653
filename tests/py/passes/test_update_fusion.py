"""Updates as epilogues of products: the bits of an update by itself, and an update by itself where it must be one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from costs import Some
from models import Setup, compiled
from oracle import assert_same_bits
from random_programs import STEPS_EACH, Program, program
from torch import Tensor, nn
from torch.nn import functional
from train_step_checks import check_train_step

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.passes.fuse import update

Batch = dict[str, Tensor]
Loss = Callable[[Any, Batch], Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]

WIDTH, INNER, ROWS = 512, 256, 48
PROGRAMS = 3


class Perceptron(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH, INNER, dtype=dtype)
        self.out = nn.Linear(INNER, WIDTH, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(functional.gelu(self.fc(x)))


def batch_of(dtype: torch.dtype = torch.float32) -> Batch:
    return {name: torch.randn(ROWS, WIDTH, dtype=dtype) for name in ("x", "t")}


def square_error(model: Any, batch: Batch) -> Tensor:
    return functional.mse_loss(model(batch["x"]), batch["t"])


def adam(**options: Any) -> MakeOptimizer:
    return lambda model: torch.optim.Adam(model.parameters(), **options)


def adamw(**options: Any) -> MakeOptimizer:
    return lambda model: torch.optim.AdamW(model.parameters(), **options)


def sgd(**options: Any) -> MakeOptimizer:
    return lambda model: torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def groups(model: nn.Module) -> torch.optim.Optimizer:
    """A weight is the second parameter of the first group, and the first of the other."""
    p = dict(model.named_parameters())
    second = {"params": [p["out.weight"], p["out.bias"]], "betas": (0.4, 0.7), "weight_decay": 0.3}
    return torch.optim.AdamW([{"params": [p["fc.bias"], p["fc.weight"]], "lr": 1e-2}, second])


def made(optimizer: MakeOptimizer, loss: Loss = square_error, **options: Any) -> Setup:
    """The same weights and batch each time."""
    torch.manual_seed(5)
    dtype = options.pop("dtype", torch.float32)
    return compiled(
        optimizer,
        model=options.pop("model", Perceptron)(dtype),
        batch=batch_of(dtype),
        loss_fn=loss,
        **options,
    )


def fused(setup: Setup) -> int:
    """How many launches of the plan are a product with an update behind it."""
    return len(re.findall(r"body = @\w+_step_of_product", str(setup.step.ir("plan"))))


OPTIMIZERS = {
    "AdamW": adamw(),
    "AdamW that decays fast, upwards": adamw(weight_decay=0.5, lr=0.1, maximize=True),
    "Adam": adam(),
    "Adam with decay": adam(weight_decay=0.1),
    "Adam upwards": adam(weight_decay=0.1, maximize=True, eps=1e-3),
    "from the far end": adam(betas=(0.3, 0.9)),
    "half way": adam(betas=(0.5, 0.5)),
    "Adam with a maximum": adam(amsgrad=True, weight_decay=0.1),
    "groups": groups,
    "SGD": sgd(momentum=0.9),
    "SGD ahead": sgd(momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD upwards, damped": sgd(momentum=0.5, dampening=0.3, weight_decay=0.1, maximize=True, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_has_the_bits_of_a_launch_of_its_own(name: str) -> None:
    """Eager steps, a learning rate that changes between them, and replays."""

    def trained(setup: Setup) -> dict[str, Tensor]:
        losses = [setup.train().clone()]
        for group in setup.optimizer.param_groups:
            group["lr"] *= 0.25
        losses.append(setup.train().clone())
        setup.step.capture(setup.batch)
        losses.append(setup.step.replay(3).clone())
        return {**setup.values(), **{f"loss {i}": loss for i, loss in enumerate(losses)}}

    ours, apart = made(OPTIMIZERS[name]), made(OPTIMIZERS[name], keep_gradients=True)
    assert (fused(ours), fused(apart)) == (2, 0)
    assert "copy_cpu" not in str(ours.step.ir("plan"))
    assert_same_bits(trained(ours), trained(apart))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30, 1e-40])
def test_special_gradients(value: float) -> None:
    ours, apart = made(adamw()), made(adamw(), keep_gradients=True)
    for setup in (ours, apart):
        setup.batch["x"][3, 7] = value
        setup.train(2)
    assert fused(ours) == 2
    assert_same_bits(ours.values(), apart.values())


class Lone(Perceptron):
    """Groups of one parameter."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        for name in ("weight", "bias"):
            getattr(self.out, name).requires_grad_(False)
        self.fc.bias.requires_grad_(False)


@pytest.mark.parametrize("optimizer", [adamw(), sgd(momentum=0.9)])
def test_one_parameter(optimizer: MakeOptimizer) -> None:
    ours, apart = made(optimizer, model=Lone), made(optimizer, model=Lone, keep_gradients=True)
    assert (fused(ours), fused(apart)) == (1, 0)
    assert "copy_cpu" not in str(ours.step.ir("plan"))
    assert_same_bits({"loss": ours.train(3)}, {"loss": apart.train(3)})
    assert_same_bits(ours.values(), apart.values())


class Tied(Perceptron):
    """The gradient of the weight is the sum of two products."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.fc(x)) @ self.fc.weight + self.out.bias + 0 * self.out.weight.sum()


def with_penalty(model: Any, batch: Batch) -> Tensor:
    return square_error(model, batch) + 1e-3 * sum(p.square().sum() for p in model.parameters())


def classified(model: Any, batch: Batch) -> Tensor:
    """A target out of range must leave everything as it was."""
    return functional.cross_entropy(model(batch["x"]), batch["t"].argmax(1))


APART: dict[str, Callable[[], Setup]] = {
    "gradients are kept": partial(made, adam(), keep_gradients=True),
    "float64": partial(made, adam(), dtype=torch.float64),
    "bfloat16": partial(made, adam(), dtype=torch.bfloat16),
    "tied": partial(made, adam(), model=Tied),
    "penalty": partial(made, adam(), with_penalty),
    "a check": partial(made, adam(), classified),
    "finite": partial(made, adam(), check_finite=True),
    "no moments": partial(made, sgd()),
}


@pytest.mark.parametrize("name", APART)
def test_what_stays_a_launch(name: str) -> None:
    assert fused(APART[name]()) == 0


def late(model: Any, batch: Batch) -> Tensor:
    """Reads a weight once more, behind all products that read it."""
    return (
        square_error(model, batch) + model.fc.weight.detach().square().sum() * model.out.bias.square().sum()
    )


def twice(model: Any, batch: Batch) -> Tensor:
    """The last reader of the weight `out` is the gradient of what comes before it."""
    hidden = functional.gelu(model.fc(batch["x"]))
    return functional.mse_loss(model.out(hidden * hidden.mean(0)), batch["t"])


@pytest.mark.parametrize("loss", [late, twice])
def test_old_values_are_read_before_they_are_replaced(loss: Loss) -> None:
    """The bits of all weights after a step. Biases, whose gradients are summed elsewhere, may differ by a rounding."""
    ours, apart = made(adamw(), loss), made(adamw(), loss, keep_gradients=True)
    assert (fused(ours), fused(apart)) == (2, 0)
    assert "copy_cpu" not in str(ours.step.ir("plan"))
    ours_loss, apart_loss = ours.train(), apart.train()
    weights, expected = (
        {name: value for name, value in setup.values().items() if "weight" in name} for setup in (ours, apart)
    )
    assert_same_bits({"loss": ours_loss, **weights}, {"loss": apart_loss, **expected})
    for setup in (ours, apart):
        setup.train(3)
    torch.testing.assert_close(ours.values(), apart.values(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", range(0, 40 * STEPS_EACH, 10 * STEPS_EACH))
def test_random_train_steps(first: int, monkeypatch: pytest.MonkeyPatch, some: Some) -> None:
    """With every update fused that can be, however small: all levels, the runtime and its replay agree with torch."""
    fuse, written = update.UpdateFusion.fuse, list[int]()

    def counted(self: update.UpdateFusion, op: KernelOp, product: KernelOp) -> None:
        written.append(case.seed)
        fuse(self, op, product)

    monkeypatch.setattr(update, "LEAST", 1)
    monkeypatch.setattr(update.UpdateFusion, "fuse", counted)
    for seed in itertools.count(first, STEPS_EACH):
        case = program(seed)
        assert isinstance(case, Program)
        fusable = isinstance(case.optimizer(nn.Linear(1, 1)), (torch.optim.SGD, torch.optim.Adam))
        if case.dtype == torch.float32 and fusable and not case.options.arguments and not case.saves:
            check_train_step(case, "cpu")
        if len(set(written)) == len(some(range(PROGRAMS))):
            break
