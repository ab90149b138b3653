"""Fifty steps beside torch eager: our error against float64 is at most three times torch's in float32."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from models import (
    OPTIMIZERS,
    Batch,
    GradientIsInput,
    Loss,
    MakeOptimizer,
    OptimizerConfig,
    Tied,
    WithDeadParameter,
    classification,
    cross_entropy,
    mlp,
    mse,
    output_is_loss,
    regression,
    to_device,
    to_dtype,
    values,
)
from oracle import assert_all_right, assert_right
from torch import nn

from aicf_mlir.step.compile import compile_train_step

STEPS = 50
ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2})
MOMENTUM = OptimizerConfig(torch.optim.SGD, {"lr": 0.05, "momentum": 0.9})
Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]

every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)


@dataclass(frozen=True)
class Training:
    """A training run that can be made in torch eager and in AICF, each time from the same start."""

    model: nn.Module
    optimizer: MakeOptimizer
    loss_fn: Loss
    batches: list[Batch]
    schedule: Schedule | None = None

    def in_torch(self, dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
        """Losses, parameters and optimizer state after the last step of torch eager in `dtype`, or as it is."""
        model = copy.deepcopy(self.model).to(dtype)
        optimizer = self.optimizer(model)
        scheduler = self.schedule(optimizer) if self.schedule else None
        losses: list[torch.Tensor] = []
        for batch in self.batches:
            optimizer.zero_grad()
            loss = self.loss_fn(model, to_dtype(batch, dtype) if dtype else batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            if scheduler:
                scheduler.step()
        return {"loss": torch.stack(losses), **values(model, optimizer)}

    def in_aicf(self, device: str) -> dict[str, torch.Tensor]:
        """The same after AICF's: the first half of the steps eager, the second half as a replayed graph."""
        model = copy.deepcopy(self.model).to(device)
        optimizer = self.optimizer(model)
        scheduler = self.schedule(optimizer) if self.schedule else None
        batches = [to_device(batch, device) for batch in self.batches]
        step = compile_train_step(model, optimizer, loss_fn=self.loss_fn, example=batches[0], device=device)
        losses: list[torch.Tensor] = []
        for i, batch in enumerate(batches):
            if i == len(batches) // 2:
                step.capture(batch)
            losses.append(step.replay(inputs=batch) if step.state == "captured" else step.train_step(batch))
            if scheduler:
                scheduler.step()
        return {"loss": torch.stack(losses).cpu(), **values(model, optimizer)}

    def check(self, device: str) -> dict[str, torch.Tensor]:
        """Both, compared with torch in float64; returns AICF's."""
        ours = self.in_aicf(device)
        assert_all_right(ours, self.in_torch(torch.float32), self.in_torch(torch.float64))
        return ours


def batches_of(make: Callable[..., Batch], **shape: int) -> list[Batch]:
    return [make(seed=seed, **shape) for seed in range(STEPS)]


# One row per regime: the gradient's magnitude by step. Spikes make amsgrad matter, zeros and tiny ones eps.
REGIMES: Mapping[str, Callable[[int], float]] = {
    "normal": lambda step: 1.0,
    "zero": lambda step: 0.0,
    "zero after a while": lambda step: 1.0 if step < 10 else 0.0,
    "tiny": lambda step: 1e-8,
    "denormal squares": lambda step: 1e-20,
    "spike": lambda step: 1e3 if step == 5 else 1e-2,
    "spike, then nothing": lambda step: 1e4 if step == 3 else 0.0,
    "huge": lambda step: 1e6,
    "decreasing": lambda step: 10.0**-step if step < 30 else 1e-30,
}


def gradients(seed: int = 3, columns: int = 33) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    batches: list[Batch] = []
    for step in range(STEPS):
        scale = torch.tensor([[magnitude(step)] for magnitude in REGIMES.values()], dtype=torch.float64)
        batches.append({"x": (scale * torch.randn(len(REGIMES), columns, generator=generator)).float()})
    return batches


@every_optimizer
def test_gradients_of_every_magnitude(optimizer: OptimizerConfig, device: str) -> None:
    training = Training(GradientIsInput(len(REGIMES), 33), optimizer, output_is_loss, gradients())
    ours = training.in_aicf(device)
    single, double = training.in_torch(torch.float32), training.in_torch(torch.float64)
    assert list(ours) == list(single), "the optimizer's state has other names than torch's"
    for name in [name for name in ours if single[name].shape == single["weight"].shape]:
        for row, regime in enumerate(REGIMES):
            what = f"{name}, gradient {regime!r}"
            assert_right(what, ours[name][row], single[name][row], double[name][row])


def _mse(optimizer: OptimizerConfig) -> Loss:
    """Mean squared error, negated where the optimizer maximizes, so that training converges either way."""
    sign = -1.0 if optimizer.options.get("maximize") else 1.0
    return lambda model, batch: mse(model, batch) * sign


@every_optimizer
def test_mlp_regression(optimizer: OptimizerConfig, device: str) -> None:
    model = mlp(15, 33, 17, activation=nn.Tanh)
    batches = batches_of(regression, batch=7, features=15, outputs=17)
    Training(model, optimizer, _mse(optimizer), batches).check(device)


@pytest.mark.parametrize(
    "activation", [nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid], ids=lambda a: a.__name__
)
def test_mlp_classification(activation: type[nn.Module], device: str) -> None:
    model = mlp(17, 31, 5, activation=activation)
    batches = batches_of(classification, batch=16, features=17, classes=5)
    Training(model, ADAM, cross_entropy, batches).check(device)


def test_without_bias(device: str) -> None:
    Training(mlp(8, 17, 8, bias=False), ADAM, mse, batches_of(regression)).check(device)


def test_tied_weights(device: str) -> None:
    Training(Tied(), ADAM, mse, batches_of(regression)).check(device)


def test_frozen_parameters_stay(device: str) -> None:
    model = mlp(8, 17, 8)
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    optimizer = OptimizerConfig(torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1})
    after = Training(model, optimizer, mse, batches_of(regression)).check(device)
    assert torch.equal(after["0.weight"], model[0].weight)
    assert torch.equal(after["2.bias"], model[2].bias)


@pytest.mark.parametrize(
    "kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW], ids=lambda k: k.__name__
)
def test_dead_parameters_are_left_alone(kind: type[torch.optim.Optimizer], device: str) -> None:
    model = WithDeadParameter()
    optimizer = OptimizerConfig(kind, {"lr": 1e-2, "weight_decay": 0.5})
    after = Training(model, optimizer, mse, batches_of(regression)).check(device)
    assert torch.equal(after["unused"], model.unused), "a parameter without a gradient must not decay"
    assert not any(name.startswith("unused.") for name in after), "nor has it optimizer state"


class Awkward(nn.Module):
    """Parameters named like batch entries and slots, of no and of three dimensions, and one that is transposed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.x, self.lr = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.randn(1, 1, 8))
        self.t = nn.Linear(8, 8)
        self.square = nn.Parameter(torch.randn(8, 8).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.t(x) * self.x + self.lr) @ self.square).squeeze(0)


def test_awkward_parameters(device: str) -> None:
    Training(Awkward(), ADAM, mse, batches_of(regression)).check(device)


class TwoTypes(nn.Module):
    """A float32 layer and a float64 layer: one optimizer for both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.single, self.double_ = nn.Linear(8, 17), nn.Linear(17, 8, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.double_(torch.tanh(self.single(x)).double()).float()


def test_parameters_of_two_types(device: str) -> None:
    training = Training(TwoTypes(), ADAM, mse, batches_of(regression)[:10])
    ours, expected = training.in_aicf(device), training.in_torch(None)
    assert {name: t.dtype for name, t in ours.items()} == {name: t.dtype for name, t in expected.items()}
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, expected[name], msg=lambda m, name=name: f"{name}: {m}")


def _two_groups(kind: type[torch.optim.Optimizer], **common: Any) -> MakeOptimizer:
    """Biases with an lr of their own and no weight decay, then the rest."""

    def make(model: nn.Module) -> torch.optim.Optimizer:
        named = dict(model.named_parameters())
        biases = [p for name, p in named.items() if name.endswith("bias")]
        weights = [p for name, p in named.items() if not name.endswith("bias")]
        return kind([{"params": biases, "lr": 0.1, "weight_decay": 0.0}, {"params": weights}], **common)

    return make


def _momentum_for_the_first(model: nn.Module) -> torch.optim.Optimizer:
    first, *rest = model.parameters()
    return torch.optim.SGD(
        [{"params": [first], "momentum": 0.9, "nesterov": True}, {"params": rest}], lr=0.02
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        pytest.param(_two_groups(torch.optim.SGD, lr=0.01, weight_decay=0.1), id="SGD"),
        pytest.param(_two_groups(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True), id="SGD nesterov"),
        pytest.param(_two_groups(torch.optim.Adam, lr=1e-3, weight_decay=0.1), id="Adam"),
        pytest.param(_two_groups(torch.optim.AdamW, lr=1e-3, amsgrad=True), id="AdamW amsgrad"),
        pytest.param(_momentum_for_the_first, id="SGD with and without momentum"),
    ],
)
def test_param_groups(optimizer: MakeOptimizer, device: str) -> None:
    Training(mlp(8, 17, 8), optimizer, mse, batches_of(regression)).check(device)


def _one_cycle(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Changes betas or momentum as well as lr."""
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=STEPS + 1)


@pytest.mark.parametrize(
    "optimizer, schedule",
    [
        pytest.param(ADAM, lambda o: torch.optim.lr_scheduler.StepLR(o, 7, 0.5), id="StepLR"),
        pytest.param(ADAM, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS), id="Cosine"),
        pytest.param(ADAM, _one_cycle, id="OneCycleLR with betas"),
        pytest.param(MOMENTUM, _one_cycle, id="OneCycleLR with momentum"),
    ],
)
def test_lr_schedulers_need_no_recompile(optimizer: OptimizerConfig, schedule: Schedule, device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Training(mlp(8, 17, 8), optimizer, mse, batches_of(regression), schedule).check(device)


@every_optimizer
def test_float64(optimizer: OptimizerConfig, device: str) -> None:
    """In float64 torch is itself the reference: the two may differ by rounding alone."""
    batches = [to_dtype(batch, torch.float64) for batch in batches_of(regression)]
    training = Training(mlp(8, 17, 8, activation=nn.Tanh).double(), optimizer, _mse(optimizer), batches)
    ours, expected = training.in_aicf(device), training.in_torch(torch.float64)
    assert list(ours) == list(expected)
    for name, tensor in ours.items():
        difference = (tensor - expected[name]).abs().max()
        assert difference <= 1e-9 * expected[name].abs().max(), f"{name} differs by {difference:.3e}"


def test_nan_in_an_ignored_row_reaches_the_gradient_as_in_torch(device: str) -> None:
    batch = classification(4, 8, 5)
    batch["x"][1] = torch.nan
    batch["t"][1] = -100
    Training(mlp(8, 5), ADAM, cross_entropy, [batch] * 4).check(device)
