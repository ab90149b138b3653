"""Random losses that take gradients of gradients of random functions, beside torch in float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_torch import assert_trains
from torch import nn
from torch.autograd import grad
from torch.nn import functional as F

Tensor = torch.Tensor
ROWS, WIDTH = 4, 6

UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.tanh,
    torch.sin,
    torch.sigmoid,
    F.silu,
    F.gelu,
    F.softplus,
    lambda x: F.softmax(x, -1),
    lambda x: F.log_softmax(x, -1),
    lambda x: F.layer_norm(x, [WIDTH]),
    lambda x: x * x,
    lambda x: (x * x + 1).sqrt(),
    lambda x: torch.exp(-x.square()),
    lambda x: x.cumsum(-1) / WIDTH,
    lambda x: x.flip(-1),
    lambda x: x.roll(1, 0),
    lambda x: x.reshape(WIDTH, ROWS).t().contiguous(),
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x / (1 + x.norm(dim=-1, keepdim=True)),
    lambda x: x.logsumexp(-1, keepdim=True).expand_as(x),
    lambda x: F.pad(x[:, 1:], (0, 1)),
    lambda x: torch.where(x > 0, x, x.exp() - 1),
]

BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.atan2,
    torch.logaddexp,
    lambda x, y: x @ y.t() @ x / WIDTH,
    lambda x, y: torch.cat([x, y], -1)[:, 1::2],
]


class Drawn(nn.Module):
    """A random function of [ROWS, WIDTH]; each value is made of earlier ones."""

    def __init__(self, draw: random.Random):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.made: list[tuple[Callable[..., Tensor], list[int]]] = []
        for count in range(1, 8):
            kind = draw.randrange(3)
            places = [draw.randrange(max(0, count - 3), count) for _ in range(1 + (kind == 2))]
            ops: list[Any] = [list(self.linear), UNARY, BINARY][kind]
            self.made.append((draw.choice(ops), places))

    def forward(self, x: Tensor) -> Tensor:
        values = [self.linear[0](x)]
        for function, places in self.made:
            values.append(function(*(values[place] for place in places)))
        return self.linear[1](values[-1]) + values[-2]


def drawn_loss(draw: random.Random) -> Callable[[Any, dict[str, Tensor]], Tensor]:
    """A loss of one to three gradients, each of the one before."""
    order, has_seeds = draw.randint(1, 3), draw.random() < 0.5
    hows = [draw.choice(["input", "parameters", "between"]) for _ in range(order)]
    constant = draw.randrange(order) if draw.random() < 0.3 else None

    def loss_of(model: Any, batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"].requires_grad_()
        between = torch.sin(x)
        value, total = model(between), torch.zeros((), dtype=x.dtype)
        for number, how in enumerate(hows):
            wrt = {"input": [x], "parameters": list(model.parameters()), "between": [between]}[how]
            seeds = batch["t"].expand_as(value) if has_seeds and number == 0 else torch.ones_like(value)
            found = grad(
                value,
                wrt,
                seeds,
                create_graph=number != constant,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            total = total + torch.stack([each.square().mean() for each in found]).sum()
            if number == constant:
                break
            value = torch.stack([each.sin().sum() for each in found])
        return torch.log1p(total) + torch.log1p(model(batch["x"]).square().mean())

    return loss_of


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sample(6)
def test_random_gradients_are_those_of_torch(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model, loss = Drawn(draw).double(), drawn_loss(draw)
    batch = {name: torch.randn(ROWS, WIDTH, dtype=torch.float64) for name in ("x", "t")}
    assert_trains(model, loss, batch, 1e-8)
