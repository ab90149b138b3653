"""Networks of coordinates, trained by the residual of an equation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad

from tests.real.case import Batch, Make, trained

ROWS = 16


def mlp(*widths: int, middle: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first, last in pairwise(widths):
        layers += [nn.Linear(first, last), middle()]
    return nn.Sequential(*layers[:-1])


def drawn(**shapes: tuple[int, ...]) -> Callable[[], Batch]:
    return lambda: {name: torch.rand(shape) for name, shape in shapes.items()}


def slope(y: Tensor, x: Tensor) -> Tensor:
    return grad(y, x, torch.ones_like(y), create_graph=True)[0]


def solved(loss: Any, outputs: int = 1, inputs: int = 2) -> Make:
    """A network of coordinates, trained by the residual of its equation at random points."""
    names = dict.fromkeys("xyt"[:inputs] if inputs > 2 else "xt", (ROWS, 1))
    return lambda: trained(mlp(inputs, 20, 20, outputs), drawn(**names), loss)
