"""Narrow models whose steps have chains, and their stages with chains made on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from edited_plans import Trained
from models import Batch, classification, cross_entropy, mlp, mse, regression
from torch import nn
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.stages import Snapshots, run_stages
from aicf_mlir.text.parsing import make_context, parse_module

ROWS = 96
"""Of the batches here: few, so that the CPU is fast; and no multiple of what kernels walk at once."""


def sequence(size: int, kind: type[nn.Module], *, bias: bool = True, out: int | None = None) -> nn.Sequential:
    return mlp(size, 32, 48, out or size, activation=kind, bias=bias)


class Shared(nn.Module):
    """One layer twice, and a residual around it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.layer, self.head = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.layer(x))
        return self.head(torch.relu(self.layer(hidden)) + hidden)


class Looking(nn.Module):
    """A softmax between two products: rows, not elements."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.last = sequence(16, nn.ReLU), sequence(16, nn.SiLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.softmax(self.first(x), -1))


def told(model: Any, batch: Mapping[str, torch.Tensor]) -> Any:
    """The loss, and outputs that the chain computes on its way."""
    y = model(batch["x"])
    return nn.functional.mse_loss(y, batch["t"]), {"y": y, "worst": (y - batch["t"]).abs().max()}


def summed(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return ((model(batch["x"]) - batch["t"]) ** 2).sum() / 100


def smooth(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return nn.functional.smooth_l1_loss(model(batch["x"]), batch["t"])


def long(batch: Batch) -> Batch:
    """Rows in two dimensions."""
    return {name: value.reshape(ROWS // 8, 8, *value.shape[1:]) for name, value in batch.items()}


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Steps whose size is that of the gradient where this is small: no noise decides about their sign."""
    return torch.optim.Adam(model.parameters(), lr=0.01, eps=1e-3)


@dataclass(frozen=True)
class Case:
    """A model, and how many links the chains of its step have."""

    chains: tuple[int, ...]
    make: Callable[[], nn.Module] = lambda: sequence(16, nn.ReLU)
    loss: Callable[..., Any] = mse
    batch: Callable[[], Batch] = lambda: regression(ROWS, 16)
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def trained(self, precision: str, device: str = "cpu") -> Trained:
        options = {"precision": precision, "loss_scale": None, **self.options}
        return Trained(self.make, adam, self.loss, self.batch(), device, options)


CASES: dict[str, Case] = {
    "relu": Case((5,)),
    "no bias": Case((5,), lambda: sequence(16, nn.ReLU, bias=False)),
    "gelu": Case((5,), lambda: sequence(16, nn.GELU)),
    "tanh": Case((5,), lambda: sequence(16, nn.Tanh)),
    "sigmoid": Case((5,), lambda: sequence(16, nn.Sigmoid)),
    "silu": Case((5,), lambda: sequence(16, nn.SiLU)),
    "cross entropy": Case((3, 2), loss=cross_entropy, batch=lambda: classification(ROWS, 16, 16)),
    "sum of squares": Case((5,), loss=summed),
    "smooth l1": Case((5,), loss=smooth),
    "outputs": Case((5,), loss=told),
    "three dimensions": Case((5,), batch=lambda: long(regression(ROWS, 16))),
    "shared": Case((5,), Shared),
    "of 128 columns": Case((7,), lambda: mlp(*[128] * 5), batch=lambda: regression(ROWS, 128)),
    "softmax between": Case((3, 6, 2), Looking),
    "scaled": Case((5,), options={"loss_scale": "dynamic"}),
    "checked": Case((5,), options={"check_finite": True, "clip_grad_norm": 0.5, "keep_gradients": True}),
}


def chained(lowered: str, rows: int = ROWS, target: str = "cpu") -> Snapshots:
    """The stages of a step from stage "lowered" on, with chains."""
    stages = Snapshots()
    module: ModuleOp = parse_module(lowered)
    run_stages(
        module,
        make_context(),
        target=target,
        first="fused",
        options={"fuse": f"back-to-back-rows={rows}"},
        after_each=stages,
    )
    return stages
