"""What people write around `backward()` and `step()`: each piece is put into the same loop body, at its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from loop_bodies import World, mlp
from torch import nn

foreach_mul_: Any = vars(torch)["_foreach_mul_"]

Piece = Callable[["Now"], Any]


@dataclass
class Now:
    """What a piece sees."""

    model: Any
    opt: torch.optim.Optimizer
    batch: Any
    y: torch.Tensor
    loss: torch.Tensor

    @property
    def params(self) -> list[Any]:
        return list(self.model.parameters())


@dataclass
class Told:
    loss: Any
    y: torch.Tensor


class Pair(NamedTuple):
    loss: Any
    y: torch.Tensor


def gradient_of_each(change: Callable[[Any, Any], None]) -> Piece:
    """`change` of each parameter that has a gradient, and its gradient."""

    def piece(now: Now) -> None:
        for p in now.params:
            if p.grad is not None:
                change(p, p.grad)

    return piece


def value_of_each(change: Callable[[Any], object]) -> Piece:
    """`change` of each parameter, under no_grad."""

    def piece(now: Now) -> None:
        with torch.no_grad():
            for p in now.params:
                change(p)

    return piece


def decayed(p: Any, gradient: torch.Tensor) -> None:
    p.grad = gradient.add(p.data, alpha=0.01)


def divided(p: Any, gradient: torch.Tensor) -> None:
    p.grad /= 6


def without_bad_numbers(_: Any, gradient: torch.Tensor) -> None:
    torch.nan_to_num(gradient, nan=0.0, posinf=1e5, neginf=-1e5, out=gradient)


def multiplied(now: Now) -> None:
    foreach_mul_([p.grad for p in now.params], 0.5)


def gradient_is_given(now: Now) -> None:
    again = F.mse_loss(now.model(now.batch["x"]), now.batch["t"])
    for p, gradient in zip(now.params, torch.autograd.grad(again, now.params), strict=True):
        p.grad = gradient


BETWEEN: dict[str, Piece] = {
    "noise": gradient_of_each(lambda p, g: g.add_(torch.full_like(g, 0.01))),
    "clamped data": gradient_of_each(lambda p, g: g.data.clamp_(-0.01, 0.01)),
    "divided": gradient_of_each(divided),
    "decay by hand": gradient_of_each(decayed),
    "bad numbers": gradient_of_each(without_bad_numbers),
    "foreach": multiplied,
    "autograd.grad": gradient_is_given,
    "value clip": lambda now: nn.utils.clip_grad_value_(now.params, 0.05),
    "norm clip that raises": lambda now: nn.utils.clip_grad_norm_(now.params, 0.5, error_if_nonfinite=True),
}
"""Behind `backward()`."""


def data_is_replaced(now: Now) -> None:
    now.model[0].weight.data = F.normalize(now.model[0].weight.data, dim=1)


def a_row_is_written(now: Now) -> None:
    now.model[0].weight.data[1] = 0.5
    with torch.no_grad():
        now.model[0].weight[2].fill_(0.25)


def towards_orthogonal(now: Now) -> None:
    with torch.no_grad():
        w = now.model[0].weight
        w.copy_(1.01 * w - 0.01 * w @ w.t() @ w)


def by_vector(now: Now) -> None:
    with torch.no_grad():
        vector = nn.utils.parameters_to_vector(now.params)
        nn.utils.vector_to_parameters(vector * 0.99, now.params)


def loaded(now: Now) -> None:
    now.model.load_state_dict({name: 0.9 * value for name, value in now.model.state_dict().items()})


AFTER: dict[str, Piece] = {
    "clamp_ of data": lambda now: [p.data.clamp_(-0.3, 0.3) for p in now.params],
    "clamp_": value_of_each(lambda p: p.clamp_(-0.3, 0.3)),
    "add_ to data": lambda now: [p.data.add_(p.data, alpha=-0.01) for p in now.params],
    "detach().zero_()": lambda now: now.model[0].bias.detach().zero_(),
    "data =": data_is_replaced,
    "rows": a_row_is_written,
    "orthogonal": towards_orthogonal,
    "by a vector": by_vector,
    "load_state_dict": loaded,
    "foreach": lambda now: foreach_mul_([p.data for p in now.params], 0.9),
}
"""Behind `step()`."""

RESULTS: dict[str, Piece] = {
    "item": lambda now: now.loss.item(),
    "items": lambda now: {"loss": now.loss.item(), "best": (now.y.argmax(1) == 1).float().mean().item()},
    "count": lambda now: (now.loss, (now.y > 0).sum().item(), len(now.y)),
    "computed": lambda now: now.loss.item() * 6 + 2 ** now.loss.item() - round(now.loss.item(), 2),
    "in a tensor": lambda now: now.y.detach() * now.loss.item(),
    "detached list": lambda now: now.y.detach().mean(1).tolist(),
    "numpy": lambda now: now.loss.detach().cpu().numpy(),
    "data class": lambda now: Told(now.loss.item(), now.y.detach()),
    "named tuple": lambda now: Pair(now.loss.detach(), now.y.detach()),
    "constants": lambda now: {"loss": now.loss, "aux": None, "phase": "train", "shape": tuple(now.y.shape)},
    "norms": lambda now: [p.grad.norm() for p in now.params],
    "total norm": lambda now: sum(p.grad.data.norm(2).item() ** 2 for p in now.params) ** 0.5,
    "nothing": lambda now: None,
}
"""What the body returns."""


def world(between: Piece | None = None, after: Piece | None = None, result: Piece | None = None) -> World:
    """The usual loop body with pieces in it."""
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        y = model(batch["x"])
        loss = F.mse_loss(y, batch["t"])
        loss.backward()
        now = Now(model, opt, batch, y, loss)
        if between is not None:
            between(now)
        opt.step()
        if after is not None:
            after(now)
        return loss.detach() if result is None else result(now)

    return World(body, [model], [opt])
