"""A model, a loss and an optimizer that read from all the places that people keep values in, for the tests of live changes."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

GLOBAL_SCALE = 0.5


def shared_helper(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)


class Net(nn.Module):
    slope = 1.5

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.layers = nn.Sequential(nn.ReLU(), nn.Linear(8, 8), nn.Tanh())
        self.drop = nn.Dropout(0.25)
        self.still = nn.Dropout(0.0)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.last = nn.Linear(8, 3)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.ones(8))
        self.table = torch.full((8,), 0.5)
        self.unlisted = [nn.Linear(8, 8).requires_grad_(False)]
        self.scale = 2.0
        self.power = 1
        self.residual = True
        self.widths = [1.0, [0.5, 0.25]]
        self.options = {"gain": 1.0, "seen": 0}
        self.config = types.SimpleNamespace(temperature=0.9, comment="nothing")
        self.ramp = np.array([1.0, 2.0])
        self.epoch = 0
        self.drop.eval()

    def extra(self, h: torch.Tensor) -> torch.Tensor:
        return h * self.slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.still(self.layers(self.first(x)))
        h = self.extra(self.drop(h)) * self.mask + self.table
        h = h + self.frozen(h) + self.unlisted[0](h)
        if self.residual:
            h = h + h
        h = h * self.scale * self.widths[1][0] * self.options["gain"] * self.config.temperature  # type: ignore[index]
        h = h * float(self.ramp[1]) ** self.power
        return self.last(h)


class World:
    """One of two equal set-ups: the compiled one, and the one that torch trains eagerly."""

    def __init__(self, make_optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer], device: str):
        torch.manual_seed(0)
        self.device = device
        self.model = Net().to(device)
        self.model.table = self.model.table.to(device)
        self.model.unlisted[0].to(device)
        self.teacher = nn.Linear(6, 3).to(device)
        self.optimizer = make_optimizer(list(self.model.parameters()))
        self.weights = {"kl": 0.5, "logged": 0.0}
        self.loss_fn, self.set_alpha = self._loss()

    def _loss(self) -> tuple[Callable[[Any, Any], torch.Tensor], Callable[[float], None]]:
        weights, teacher, alpha = self.weights, self.teacher, 0.75

        def loss_fn(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            y = shared_helper(model(batch["x"])) * GLOBAL_SCALE
            return F.mse_loss(y, batch["t"]) + weights["kl"] * alpha * F.mse_loss(y, teacher(batch["x"]))

        def set_alpha(value: float) -> None:
            nonlocal alpha
            alpha = value

        return loss_fn, set_alpha

    def batch(self, seed: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        x, t = torch.randn(5, 6, generator=generator), torch.randn(5, 3, generator=generator)
        return {"x": x.to(self.device), "t": t.to(self.device)}

    def eager(self, seed: int) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model, self.batch(seed))
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        self.optimizer.step()
        return loss.detach()

    def values(self) -> dict[str, torch.Tensor]:
        found = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        names: dict[Any, str] = {p: name for name, p in self.model.named_parameters()}
        for p, state in self.optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    found[f"{names.get(p, '?')}.{key}"] = value.detach().clone()
        return found
