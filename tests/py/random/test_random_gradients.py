"""Random losses that take gradients of gradients of random functions, judged by torch in float64.

A campaign has 1,000 of them on each device, and 200 of vmap: `pytest --campaign tests/py/random/test_random_gradients.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from beside_torch import assert_near, compiled, losses_of_torch
from differentiated import ROWS, WIDTH, Drawn
from torch.autograd import forward_ad, grad
from torch.func import functional_call, hessian, jacfwd, jacrev, vmap
from torch.func import grad as func_grad

from aicf_mlir import TraceError
from aicf_mlir.frontend import gradient_rows

Tensor = torch.Tensor
Batch = dict[str, Tensor]
Loss = Callable[[Any, Batch], Tensor]
Along = Callable[[Any, Tensor, Tensor], Tensor]
jvp: Any = torch.func.jvp
vjp: Any = torch.func.vjp
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp

STEPS, TOLERANCE = 3, 1e-8


def dual(model: Any, x: Tensor, t: Tensor) -> Tensor:
    with forward_ad.dual_level():
        along = forward_ad.unpack_dual(model(torch.sin(forward_ad.make_dual(x, t))))[1]
    return torch.as_tensor(along)


def energy(model: Any, x: Tensor) -> Tensor:
    return model(torch.sin(x)).sin().sum()


def of_weights(model: Any, x: Tensor, t: Tensor) -> Tensor:
    weights = dict(model.named_parameters())
    found = func_grad(lambda w: (functional_call(model, w, (x.sin(),)) * t).sum())(weights)
    return torch.stack([each.sin().sum() for each in found.values()])


def of_each_row(model: Any, x: Tensor, t: Tensor) -> Tensor:
    return vmap(func_grad(lambda row: energy(model, row[None] * t)), randomness="error")(x)


FORWARDS: list[Along] = [
    dual,
    lambda model, x, t: jvp(lambda y: model(y.sin()), (x,), (t,))[1],
    lambda model, x, t: jvp(func_grad(lambda y: energy(model, y)), (x,), (t,))[1],
    lambda model, x, t: jacfwd(lambda row: model(torch.sin(x + row)).mean())(t[0]),
    lambda model, x, t: hessian(lambda row: energy(model, x + row))(t[0]),
]
BACKWARDS: list[Along] = [
    lambda model, x, t: func_grad(lambda y: energy(model, y))(x),
    lambda model, x, t: func_grad(lambda y: func_grad(lambda z: energy(model, z))(y).sin().sum())(x) * t,
    lambda model, x, t: vjp(lambda y: model(y.sin()), x)[1](t)[0],
    lambda model, x, t: jacrev(lambda row: model(torch.sin(x + row)).mean(0))(t[0]),
    lambda model, x, t: vmap(jacrev(lambda row: energy(model, x + row)))(t[:2]),
    of_weights,
    of_each_row,
]
"""Derivatives with torch.func of a model at x, of whatever shape, that read t too."""


def drawn_loss(draw: random.Random, model: Drawn) -> Loss:
    """A loss of one to three gradients, each of the one before."""
    order, has_seeds = draw.randint(1, 3), draw.random() < 0.5
    functions = draw.choices([*BACKWARDS, *FORWARDS], k=order)
    hows = [draw.choice(["input", "parameters", "between", "function"]) for _ in range(order)]
    constant = draw.randrange(order) if draw.random() < 0.3 else None

    def loss_of(model: Any, batch: Batch) -> Tensor:
        x = batch["x"].requires_grad_()
        between = torch.sin(x)
        value, total = model(between), torch.zeros((), dtype=x.dtype)
        for number, how in enumerate(hows):
            if how == "function":
                value = value * value.mean() + functions[number](model, x, batch["t"]).mean().sin()
                total = total + value.square().mean()
                continue
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


def trained(model: Any, loss: Loss, batch: Batch) -> list[Tensor]:
    """The losses of torch, and the parameters after them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = losses_of_torch(model, optimizer, loss, batch, STEPS)
    return [torch.stack(losses), *(each.detach() for each in model.parameters())]


def of_torch(model: Drawn, loss: Loss, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
    """What torch trains, and what it trains after a change in the twelfth digit of the parameters."""
    nudged = model.by_parts()
    with torch.no_grad():
        for each in nudged.parameters():
            each.mul_(1 + 1e-12)
    return trained(model.by_parts(), loss, batch), trained(nudged, loss, batch)


def assert_judged(model: Drawn, loss: Loss, torchs: Loss, batch: Batch, device: str = "cpu") -> None:
    """On the device, losses and parameters are torch's, up to what that change makes of them.

    Torch has no derivative forwards of a function with its own backward: such a loss may be refused here too.
    """
    try:
        wanted, moved = of_torch(model, torchs, batch)
    except RuntimeError as error:
        if not (model.is_bent and "must implement" in str(error)):
            raise
        with suppress(TraceError):
            compiled(model, loss, batch, device)
        return
    if not all(torch.isfinite(each).all() for each in wanted):
        return
    model.to(device)
    given = {name: tensor.to(device) for name, tensor in batch.items()}
    step = compiled(model, loss, given, device)
    losses = torch.stack([step.train_step(given).clone() for _ in range(STEPS)])
    got = [each.detach().cpu() for each in (losses, *model.parameters())]
    for number, (own, theirs, other) in enumerate(zip(got, wanted, moved, strict=True)):
        rounding = (theirs - other).abs().max().item() / (theirs.abs().max().item() + 1e-6)
        assert_near(
            own, theirs, max(TOLERANCE, 100 * rounding), "losses" if number == 0 else f"parameter {number}"
        )


def drawn(seed: int) -> tuple[random.Random, Drawn]:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    return draw, Drawn(draw).double()


def test_random_gradients_are_those_of_torch(
    gradient_seed: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a Jacobian are taken together in every second program."""
    monkeypatch.setattr(gradient_rows, "FEW", 16 * (gradient_seed % 2))
    draw, model = drawn(gradient_seed)
    loss = drawn_loss(draw, model)
    batch = {name: torch.randn(ROWS, WIDTH, dtype=torch.float64) for name in ("x", "t")}
    assert_judged(model, loss, loss, batch, device)
