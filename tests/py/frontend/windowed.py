"""A layer over windows whose input is trained too, so that each element of its gradient is compared."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
from beside_torch import assert_trains
from torch import nn

TOLERANCES = {torch.float64: 1e-10, torch.float32: 5e-5}


class Fed(nn.Module):
    """`layer` of a trained input of `shape`."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]):
        super().__init__()
        self.layer = layer
        self.x = nn.Parameter(torch.randn(shape))

    def forward(self, scale: torch.Tensor) -> Any:
        return self.layer(self.x * scale)


def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Of all results that have a gradient, each element with its own weight."""
    results = model(batch["scale"])
    y = (results if isinstance(results, torch.Tensor) else results[0]).flatten()
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype)).square().mean()


def assert_layer_trains(
    make: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> None:
    """Values, gradients and a replay."""
    torch.manual_seed(0)
    model = Fed(make(), shape).to(dtype)
    assert_trains(model, loss, {"scale": torch.full((), 1.25, dtype=dtype)}, TOLERANCES[dtype])


class Draw:
    """Random arguments of a layer over windows."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.rank = self.random.choice((1, 2, 2, 2, 3))

    def each(self, *choices: int) -> tuple[int, ...]:
        """A number for each dimension."""
        return tuple(self.random.choice(choices) for _ in range(self.rank))

    def one(self, *choices: Any) -> Any:
        """One of them."""
        return self.random.choice(choices)

    def spatial(self, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...]:
        """Sizes that hold a window without padding, and perhaps some elements that no window reaches."""
        return tuple(
            d * (k - 1) + 1 + self.random.randrange(6) for k, d in zip(kernel, dilation, strict=True)
        )
