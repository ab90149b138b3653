"""What a user trains: a model, a loss, a batch and an optimizer, made anew by each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Any], torch.Tensor]
Function = Callable[..., Any]

ROWS, SIZE = 5, 8
"""The input of `behind_linear` where there is no other."""


def weighed(y: torch.Tensor) -> torch.Tensor:
    """A loss in which no two elements count alike, so that no gradient vanishes by symmetry."""
    y = y.flatten()
    weight = torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype, device=y.device)
    return (y * weight).square().mean() + (y * weight.flip(0)).mean()


def descent(model: nn.Module) -> torch.optim.Optimizer:
    """Steps as large as the gradients: rounding noise stays noise."""
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


@dataclass(frozen=True)
class Case:
    """A row: what a user's script has before its loop."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Loss = lambda model, batch: weighed(model(**batch))
    """Of model and batch; by default the model takes the batch by name."""
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = descent
    tolerance: float = 2e-5
    """Of a tensor's largest element."""


class Behind(nn.Module):
    """`function(Linear(x), *modules)`."""

    def __init__(self, function: Function, *modules: nn.Module, size: int = SIZE):
        super().__init__()
        self.first = nn.Linear(size, size)
        self.layers = nn.ModuleList(modules)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.first(x), *self.layers)


def behind_linear(
    function: Function,
    *modules: Callable[[], nn.Module],
    shape: tuple[int, ...] = (ROWS, SIZE),
    tolerance: float = 2e-5,
) -> Case:
    """A function of what a Linear makes of a batch of `shape`, and of modules."""
    return Case(
        lambda: Behind(function, *(make() for make in modules), size=shape[-1]),
        lambda: {"x": torch.randn(shape)},
        tolerance=tolerance,
    )


def apply(x: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """The function of a case that has one layer."""
    return layer(x)


def functions(rows: Mapping[str, Function]) -> dict[str, Case]:
    """A case for each function of a matrix."""
    return {name: behind_linear(function) for name, function in rows.items()}


def mlp(*sizes: int, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with `act` between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), act()]
    return nn.Sequential(*layers[:-1])
