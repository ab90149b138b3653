"""A model and a loss that read what is not theirs: torch's state, the environment, a context, functions and classes."""

from __future__ import annotations

import contextvars
import os
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

GAIN: contextvars.ContextVar[float] = contextvars.ContextVar("GAIN", default=1.0)
LOCAL = threading.local()
LOCAL.gain = 1.0
MODE = "GLOBAL_WORLDS_MODE"


def shifted(x: torch.Tensor, gain: float = 1.0, *, shift: float = 0.0) -> torch.Tensor:
    return x * gain + shift


def wide(x: torch.Tensor, gain: float = 2.0, *, shift: float = 0.5) -> torch.Tensor:
    return x * gain * 3.0 + shift


def called(x: torch.Tensor) -> torch.Tensor:
    return torch.sinh(x)


class Scale:
    """An object of the user's."""

    unit = 1.0

    def __init__(self) -> None:
        self.factor = 1.5

    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor * self.unit


class LargeScale(Scale):
    def of(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor * 4.0


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(self.extra(self.inner(x)))


class LargeBlock(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * F.softplus(self.inner(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.block = Block()
        self.last = nn.Linear(4, 2)
        self.scale = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.block(self.act(self.first(x)))
        h = (h + torch.ones(4).mul(0.1)).float()  # a tensor of the default dtype
        if torch.are_deterministic_algorithms_enabled():
            h = h * 0.5
        if torch.get_num_threads() > 2:
            h = h * 0.25
        if os.environ.get(MODE) == "large":
            h = h * 2.0
        if torch.get_float32_matmul_precision() == "medium":
            h = h * 1.25
        h = shifted(torch.tanh(h), shift=0.125) * GAIN.get() * getattr(LOCAL, "gain", 3.0)
        h = called(h).mul(0.5)
        return self.last(self.scale.of(h))


class World:
    """One of two equal set-ups: the compiled one, and the one that torch trains eagerly."""

    def __init__(self, momentum: bool = False) -> None:
        torch.manual_seed(0)
        self.model = Net()
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)
            if momentum
            else torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01)
        )

    @staticmethod
    def loss_fn(model: Any, batch: Any) -> torch.Tensor:
        return F.mse_loss(model(batch["x"]), batch["t"])

    def body(self, batch: Any) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.loss_fn(self.model, batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def batch(self, seed: int) -> dict[str, torch.Tensor]:
        draw = torch.Generator().manual_seed(seed)
        x, t = (
            torch.randn(3, 4, generator=draw, dtype=torch.float32),
            torch.randn(3, 2, generator=draw, dtype=torch.float32),
        )
        return {"x": x, "t": t}

    def eager(self, batch: Any) -> torch.Tensor:
        return self.body(batch).detach()

    def values(self) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}
