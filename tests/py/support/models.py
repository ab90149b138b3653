"""Models, optimizers and batches of several tests. Everything is seeded: built twice, it is the same."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aicf_mlir import optim
from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Mapping[str, torch.Tensor]], torch.Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def mlp(
    *widths: int, activation: type[nn.Module] = nn.ReLU, bias: bool = True, seed: int = 0
) -> nn.Sequential:
    """Linear layers of the given widths with an activation between them."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


class GradientIsInput(nn.Module):
    """loss = sum(weight · x): the gradient of `weight` is the batch's "x", so tests choose any gradient."""

    def __init__(self, *shape: int, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


class Tied(nn.Module):
    """One square layer used twice, and a decoder that shares the encoder's weight."""

    def __init__(self, features: int = 8, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.encoder = nn.Linear(features, features)
        self.decoder = nn.Linear(features, features)
        self.decoder.weight = self.encoder.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(torch.tanh(self.encoder(torch.tanh(self.encoder(x)))))


class WithDeadParameter(nn.Module):
    """`unused` takes part in no loss: torch never gives it a gradient, nor decays it."""

    def __init__(self, features: int = 8, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.first = nn.Linear(features, features)
        self.unused = nn.Parameter(torch.randn(features))
        self.last = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))


def regression(
    batch: int = 8,
    features: int = 8,
    outputs: int | None = None,
    *,
    seed: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    """Normal inputs "x" and targets "t"."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, features, generator=generator, dtype=torch.float64)
    t = torch.randn(batch, outputs or features, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype), "t": t.to(dtype)}


def classification(batch: int = 8, features: int = 8, classes: int = 4, *, seed: int = 1) -> Batch:
    """Normal inputs "x" and class indices "t"."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(batch, features, generator=generator),
        "t": torch.randint(0, classes, (batch,), generator=generator),
    }


def mse(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch["x"]), batch["t"])


def cross_entropy(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch["x"]), batch["t"])


def output_is_loss(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return model(batch["x"])


@dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer class with its options; calling it makes one for a model."""

    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.of(model.parameters())

    def of(self, parameters: Any) -> torch.optim.Optimizer:
        """One for these parameters or groups."""
        return self.kind(parameters, **copy.deepcopy(self.options))

    def but(self, **options: Any) -> OptimizerConfig:
        """The same with other values of these options."""
        return OptimizerConfig(self.kind, {**self.options, **options})

    def __str__(self) -> str:
        options = ",".join(
            name if value is True else f"{name}={value}"
            for name, value in self.options.items()
            if name != "lr"
        )
        return self.kind.__name__ + (f"({options})" if options else "")


def _sgd(**options: Any) -> OptimizerConfig:
    return OptimizerConfig(torch.optim.SGD, {"lr": 0.05, **options})


def _of(kind: type[torch.optim.Optimizer], **options: Any) -> OptimizerConfig:
    return OptimizerConfig(kind, {"lr": 1e-2, **options})


OPTIMIZERS: tuple[OptimizerConfig, ...] = (
    _sgd(),
    _sgd(weight_decay=0.1),
    _sgd(maximize=True),
    _sgd(momentum=0.9),
    _sgd(momentum=0.9, weight_decay=0.1),
    _sgd(momentum=0.9, dampening=0.3),
    _sgd(momentum=0.9, nesterov=True),
    _sgd(momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True),
    _sgd(momentum=0.5, dampening=0.1, weight_decay=0.01, maximize=True),
    _of(torch.optim.Adam),
    _of(torch.optim.Adam, weight_decay=0.1),
    _of(torch.optim.Adam, amsgrad=True),
    _of(torch.optim.Adam, betas=(0.6, 0.8), eps=1e-4),
    _of(torch.optim.Adam, amsgrad=True, weight_decay=0.1, maximize=True),
    _of(torch.optim.AdamW),
    _of(torch.optim.AdamW, weight_decay=0.0),
    _of(torch.optim.AdamW, amsgrad=True, weight_decay=0.1),
    _of(torch.optim.AdamW, maximize=True, weight_decay=0.1),
    _of(torch.optim.RMSprop),
    _of(torch.optim.RMSprop, momentum=0.9, weight_decay=0.1),
    _of(torch.optim.RMSprop, alpha=0.9, centered=True, maximize=True, eps=1e-4),
    _of(torch.optim.RMSprop, momentum=0.5, centered=True, eps=1e-3),
    _of(torch.optim.Adagrad),
    _of(torch.optim.Adagrad, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.3),
    _of(torch.optim.Adagrad, maximize=True, eps=1e-4),
    _of(torch.optim.Adadelta, lr=1.0),
    _of(torch.optim.Adadelta, rho=0.5, weight_decay=0.1, maximize=True, eps=1e-3),
    _of(torch.optim.Adamax),
    _of(torch.optim.Adamax, betas=(0.6, 0.8), weight_decay=0.1, maximize=True),
    _of(torch.optim.NAdam),
    _of(torch.optim.NAdam, weight_decay=0.1, momentum_decay=0.1, betas=(0.8, 0.9)),
    _of(torch.optim.NAdam, weight_decay=0.1, decoupled_weight_decay=True, maximize=True),
    _of(torch.optim.RAdam),
    _of(torch.optim.RAdam, weight_decay=0.1, betas=(0.8, 0.9)),
    _of(torch.optim.RAdam, weight_decay=0.1, decoupled_weight_decay=True, maximize=True),
    _of(optim.Lion),
    _of(optim.Lion, betas=(0.6, 0.8), weight_decay=0.1, maximize=True),
    _of(torch.optim.Rprop),
    _of(torch.optim.Rprop, etas=(0.3, 1.5), step_sizes=(1e-3, 0.02), maximize=True),
    _of(torch.optim.ASGD),
    _of(torch.optim.ASGD, lambd=0.1, t0=3, alpha=0.5, weight_decay=0.1, maximize=True),
)
"""Every combination of options that changes which formula runs."""

CONTRACT_OPTIMIZERS: tuple[OptimizerConfig, ...] = (
    _sgd(),
    _sgd(momentum=0.9),
    _sgd(momentum=0.9, nesterov=True, weight_decay=0.01),
    _of(torch.optim.Adam),
    _of(torch.optim.Adam, amsgrad=True),
    _of(torch.optim.AdamW, weight_decay=0.1),
    _of(torch.optim.RMSprop, momentum=0.9, centered=True),
    _of(torch.optim.NAdam, weight_decay=0.1),
    _of(torch.optim.ASGD, t0=1),
)
"""One of each kind of state, for the tests that compare bits."""


def to_device(batch: Batch, device: str) -> Batch:
    return {name: tensor.to(device) for name, tensor in batch.items()}


def to_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in batch.items()}


def values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Copies of all parameters, by name, and of the optimizer's state, as NAME.KEY; on the CPU."""
    tensors = {name: p.detach().cpu().clone() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for key, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, torch.Tensor):
                tensors[f"{name}.{key}"] = value.detach().cpu().clone()
    return tensors


@dataclass
class Setup:
    """A compiled step with the torch objects that it trains."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: CompiledTrainStep
    batch: Batch

    def train(self, steps: int = 1) -> torch.Tensor:
        loss = torch.tensor(0.0)
        for _ in range(steps):
            loss = self.step.train_step(self.batch)
        return loss

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.optimizer)


def compiled(
    optimizer: MakeOptimizer,
    device: str = "cpu",
    *,
    model: nn.Module | None = None,
    batch: Batch | None = None,
    loss_fn: Loss = mse,
    **options: Any,
) -> Setup:
    """A small model, by default an 8-17-8 perceptron on 5 rows, compiled for `device`."""
    model = (model or mlp(8, 17, 8)).to(device)
    batch = to_device(batch or regression(5), device)
    made = optimizer(model)
    step = compile_train_step(model, made, loss_fn=loss_fn, example=batch, device=device, **options)
    return Setup(model, made, step, batch)
