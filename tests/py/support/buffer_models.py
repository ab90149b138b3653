"""Models whose forward updates buffers in every way of writing one, and a compiled step of one."""

from __future__ import annotations

import copy
from typing import Any

import torch
from models import Batch, Loss, mse, regression, to_device, to_dtype
from torch import nn

from aicf_mlir import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep


class Normalized(nn.Module):
    """Running mean and variance written by hand, as batch normalisation keeps them."""

    def __init__(self, features: int, momentum: float = 0.1):
        super().__init__()
        self.momentum = momentum
        self.running_mean: torch.Tensor
        self.running_var: torch.Tensor
        self.count: torch.Tensor
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return (x - self.running_mean) / (1 + self.running_var)
        mean = x.mean(0)
        variance = ((x - mean) ** 2).mean(0)
        self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean.detach())
        with torch.no_grad():
            self.running_var.lerp_(variance, self.momentum)
        self.count += 1
        return (x - mean) / (1 + variance) + 0.1 * self.running_mean


class Averaged(nn.Module):
    """Averages in every other way of writing one: assigned, copied, updated twice, not in the state_dict."""

    def __init__(self, features: int):
        super().__init__()
        self.average: torch.Tensor
        self.cleared: torch.Tensor
        self.fixed: torch.Tensor
        self.last: torch.Tensor
        self.twice: torch.Tensor
        self.register_buffer("last", torch.zeros(features))
        self.register_buffer("average", torch.zeros(features), persistent=False)
        self.register_buffer("twice", torch.ones(features))
        self.register_buffer("cleared", torch.ones(features))
        self.register_buffer("fixed", torch.full((features,), 0.5))
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int32))
        self.ema = nn.Parameter(torch.zeros(features), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        now = x.detach().mean(0)
        weight = 1.0 / (self.steps[None].float().mean() + 2.0)
        self.average = self.average * 0.5 + now * weight
        self.last.copy_(now)
        self.twice.mul_(0.9)
        y = x + self.twice
        self.twice += 0.1 * self.last
        self.cleared.zero_()
        self.steps.add_(2).sub_(1)
        with torch.no_grad():
            self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return y + self.average + self.ema * self.fixed + self.twice


def model(seed: int = 0, *, outputs: int = 8) -> nn.Sequential:
    """Two layers with statistics; one object of them is used twice."""
    torch.manual_seed(seed)
    norm = Normalized(8)
    return nn.Sequential(
        nn.Linear(8, 8), norm, nn.Tanh(), nn.Linear(8, 8), Averaged(8), norm, nn.Linear(8, outputs)
    )


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of parameters and of all buffers."""
    found: dict[str, torch.Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor.detach().cpu().clone() for name, tensor in found.items()}


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.02, momentum=0.9)


def eager(
    module: nn.Module, loss_fn: Loss, batches: list[Batch], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    module = copy.deepcopy(module).to(dtype)
    optimizer = sgd(module)
    losses: list[torch.Tensor] = []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_fn(module, to_dtype(batch, dtype))
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return {"loss": torch.stack(losses), **tensors_of(module)}


class Compiled:
    """A compiled step with its model."""

    def __init__(
        self, module: nn.Module, device: str, loss_fn: Loss = mse, batch: Batch | None = None, **options: Any
    ):
        self.model = module.to(device)
        self.device = device
        self.optimizer = sgd(module)
        example = to_device(batch or regression(5), device)
        self.step: CompiledTrainStep = compile_train_step(
            self.model, self.optimizer, loss_fn=loss_fn, example=example, device=device, **options
        )

    def train(self, *seeds: int) -> torch.Tensor:
        losses = [self.step.train_step(self.batch(seed)) for seed in seeds]
        return torch.stack(losses).cpu()

    def batch(self, seed: int) -> Batch:
        return to_device(regression(5, seed=seed), self.device)

    def tensors(self) -> dict[str, torch.Tensor]:
        return tensors_of(self.model)


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
