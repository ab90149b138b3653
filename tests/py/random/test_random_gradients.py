"""Random losses that take gradients of gradients of random functions, beside torch in float64; and vmap of them, beside loops.

`pytest --campaign tests/py/random/test_random_gradients.py --programs 8000` runs 1,000 of each.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_torch import assert_near, assert_trains, compiled, losses_of_torch
from torch import nn
from torch.autograd import forward_ad, grad
from torch.func import functional_call, vmap
from torch.func import grad as func_grad
from torch.nn import functional as F

from aicf_mlir import TraceError

Tensor = torch.Tensor
jvp: Any = torch.func.jvp
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp

ROWS, WIDTH = 4, 6
SAMPLES = 3


class Bent(torch.autograd.Function):
    """Its gradient is not the derivative, and reads operand and result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x / (1 + x.abs())
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * (1 - y.tanh() * y) * x.cos()


bent: Any = Bent.apply

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

NOT_FORWARDS = UNARY[6], UNARY[7], UNARY[18]
"""Softmax and its kin: torch raises where their derivative forwards is differentiated, since it has written to what it saved."""

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

    def __init__(self, draw: random.Random, unary: list[Callable[[Tensor], Tensor]] = UNARY):
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.made: list[tuple[Callable[..., Tensor], list[int]]] = []
        for count in range(1, 8):
            kind = draw.randrange(3)
            places = [draw.randrange(max(0, count - 3), count) for _ in range(1 + (kind == 2))]
            ops: list[Any] = [list(self.linear), unary, BINARY][kind]
            self.made.append((draw.choice(ops), places))

    def forward(self, x: Tensor) -> Tensor:
        values = [self.linear[0](x)]
        for function, places in self.made:
            values.append(function(*(values[place] for place in places)))
        return self.linear[1](values[-1]) + values[-2]


def drawn_loss(draw: random.Random, model: Drawn) -> Callable[[Any, dict[str, Tensor]], Tensor]:
    """A loss of one to three gradients, each of the one before."""
    order, has_seeds = draw.randint(1, 3), draw.random() < 0.5
    kinds = ["input", "parameters", "between"]
    if not any(function in NOT_FORWARDS for function, _ in model.made):
        kinds += ["along", "dual"]
    hows = [draw.choice(kinds) for _ in range(order)]
    constant = draw.randrange(order) if draw.random() < 0.3 else None

    def forwards(model: Any, x: Tensor, t: Tensor, how: str) -> Tensor:
        """The derivative of the model along t, forwards."""
        if how == "along":
            return jvp(lambda y: model(torch.sin(y)), (x,), (t,))[1]
        with forward_ad.dual_level():
            along = forward_ad.unpack_dual(model(torch.sin(forward_ad.make_dual(x, t))))[1]
        return torch.as_tensor(along)

    def loss_of(model: Any, batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"].requires_grad_()
        between = torch.sin(x)
        value, total = model(between), torch.zeros((), dtype=x.dtype)
        for number, how in enumerate(hows):
            if how in ("along", "dual"):
                value = value * value.mean() + forwards(model, x, batch["t"].expand_as(x), how).mean().sin()
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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    first, count = (int(metafunc.config.getoption(name)) for name in ("--seed", "--programs"))
    metafunc.parametrize("seed", range(first, first + max(1, count // 8)))


def drawn_model(draw: random.Random, seed: int, unary: list[Callable[[Tensor], Tensor]]) -> Drawn:
    torch.manual_seed(seed)
    return Drawn(draw, unary).double()


def test_random_gradients_are_those_of_torch(seed: int) -> None:
    draw = random.Random(seed)
    has_function = draw.random() < 0.3
    model = drawn_model(draw, seed, [*UNARY, *[bent] * 5] if has_function else UNARY)
    loss = drawn_loss(draw, model)
    batch = {name: torch.randn(ROWS, WIDTH, dtype=torch.float64) for name in ("x", "t")}
    if not has_function:
        assert_trains(model, loss, batch, 1e-8)
        return
    try:
        assert_trains(model, loss, batch, 1e-8)
    except RuntimeError as error:  # torch has no derivative forwards of it, either
        assert "must implement" in str(error) and "jvp" in str(error)
        with pytest.raises(TraceError, match="'Bent' is differentiated forwards"):
            compiled(model, loss, batch)


def of_a_sample(draw: random.Random) -> Callable[[Any, Tensor], Tensor]:
    """A random function of a model and one sample of [ROWS, WIDTH]."""
    how = draw.choice(["value", "gradient", "second", "along", "of parameters", "inner vmap"])

    def energy(model: Any, x: Tensor) -> Tensor:
        return model(x).sin().sum()

    def function(model: Any, x: Tensor) -> Tensor:
        if how == "value":
            return model(x)
        if how == "gradient":
            return func_grad(lambda y: energy(model, y))(x)
        if how == "second":
            return func_grad(lambda y: func_grad(lambda z: energy(model, z))(y).sin().sum())(x)
        if how == "along":
            return jvp(model, (x,), (x.cos(),))[1]
        if how == "inner vmap":
            return vmap(func_grad(lambda y: energy(model, y[None].expand(ROWS, WIDTH))))(x)
        weights = dict(model.named_parameters())
        found = func_grad(lambda w: functional_call(model, w, (x,)).sin().sum())(weights)
        return torch.stack([each.sin().sum() for each in found.values()])

    return function


def test_vmap_of_a_random_function_is_a_loop(seed: int) -> None:
    draw = random.Random(seed)
    model, function = drawn_model(draw, seed, UNARY), of_a_sample(draw)
    reference = copy.deepcopy(model)
    batch = {"x": torch.randn(SAMPLES, ROWS, WIDTH, dtype=torch.float64)}

    def at_once(model: Any, b: dict[str, Tensor]) -> Tensor:
        return (
            torch.log1p(vmap(lambda x: function(model, x))(b["x"]).square().mean())
            + 0.1 * model(b["x"][0]).mean()
        )

    def in_turn(model: Any, b: dict[str, Tensor]) -> Tensor:
        rows = torch.stack([function(model, x) for x in b["x"]])
        return torch.log1p(rows.square().mean()) + 0.1 * model(b["x"][0]).mean()

    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    expected = losses_of_torch(reference, optimizer, in_turn, batch, 3)
    step = compiled(model, at_once, batch)
    for wanted in expected:
        assert_near(step.train_step(batch), wanted, 1e-8, "loss")
    for (name, got), wanted in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), 1e-8, name)
