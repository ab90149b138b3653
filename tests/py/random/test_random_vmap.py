"""vmap of random functions of a sample and their derivatives, beside a loop of torch over the samples."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from beside_torch import compiled
from differentiated import ROWS, WIDTH
from test_random_gradients import assert_judged, drawn
from torch import Tensor
from torch.func import functional_call, vmap
from torch.func import grad as func_grad
from torch.nn import functional as F

SAMPLES = 3
OfSample = Callable[[Any, Tensor, Tensor], Tensor]
jvp: Any = torch.func.jvp
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp


def energy(model: Any, x: Tensor, w: Tensor) -> Tensor:
    return (model(x) * w).sin().sum()


def of_parameters(model: Any, x: Tensor, w: Tensor) -> Tensor:
    weights = dict(model.named_parameters())
    found = func_grad(lambda own: (functional_call(model, own, (x,)) * w).sin().sum())(weights)
    return torch.stack([each.sin().sum() for each in found.values()])


def twice(model: Any, x: Tensor, w: Tensor) -> Tensor:
    return func_grad(lambda y: func_grad(lambda z: energy(model, z, w))(y).sin().sum())(x)


OF_SAMPLE: list[OfSample] = [
    lambda model, x, w: model(x) * w,
    lambda model, x, w: func_grad(lambda y: energy(model, y, w))(x),
    lambda model, x, w: jvp(model, (x,), (x.cos() * w,))[1],
    lambda model, x, w: vmap(lambda row: model(row[None] + x))(w),
    lambda model, x, w: vmap(func_grad(lambda row: energy(model, row[None] + x, w)), in_dims=1)(
        w.repeat(2, 1)[:WIDTH]
    ),
    lambda model, x, w: vmap(vmap(lambda one: model(x * one).mean()), out_dims=1)(w),
    twice,
    of_parameters,
]
"""Functions of a model, a sample of [ROWS, WIDTH] and weights of it."""


def moved(x: Tensor, dim: int | None) -> Tensor:
    return x if dim is None else x.movedim(0, dim)


def test_vmap_of_a_random_function_is_a_loop(batched_seed: int) -> None:
    draw, model = drawn(batched_seed)
    function, out_dim = draw.choice(OF_SAMPLE), draw.choice([0, 0, 1, -1])
    in_dims = draw.choice([0, 0, 1, 2, -1]), draw.choice([0, 1, None])
    batch = {"x": torch.randn(SAMPLES, ROWS, WIDTH), "w": torch.randn(SAMPLES, ROWS, WIDTH)}
    batch = {name: each.double() for name, each in batch.items()}

    def loss_of(rows: Tensor, model: Any, b: dict[str, Tensor]) -> Tensor:
        weights = torch.linspace(0.5, 1.5, rows.numel(), dtype=rows.dtype).view_as(rows)
        return torch.log1p((rows * weights).square().mean()) + 0.1 * model(b["x"][0]).mean()

    def at_once(model: Any, b: dict[str, Tensor]) -> Tensor:
        given = moved(b["x"], in_dims[0]), b["w"][0] if in_dims[1] is None else moved(b["w"], in_dims[1])
        chunk = 2 if out_dim == 1 else None
        rows = vmap(lambda x, w: function(model, x, w), in_dims=in_dims, out_dims=out_dim, chunk_size=chunk)(
            *given
        )
        return loss_of(rows.movedim(out_dim, 0), model, b)

    def in_turn(model: Any, b: dict[str, Tensor]) -> Tensor:
        weights = [b["w"][0]] * SAMPLES if in_dims[1] is None else b["w"]
        rows = torch.stack([function(model, x, w) for x, w in zip(b["x"], weights, strict=True)])
        return loss_of(rows, model, b)

    assert_judged(model, at_once, in_turn, batch)


def dropped(x: Tensor) -> Tensor:
    return F.dropout(x, 0.5)


def noisy(x: Tensor) -> Tensor:
    return x * torch.rand_like(x).round()


def placed(x: Tensor) -> Tensor:
    return x * torch.bernoulli(torch.full_like(x, 0.5))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_draws_in_vmap(batched_seed: int, randomness: str) -> None:
    """Samples have one mask or one each, and the gradient has that of its forward."""
    draw = random.Random(batched_seed)
    masks = (
        [dropped, noisy] if randomness == "same" else [dropped, noisy, placed]
    )  # as torch, of a batched tensor
    masked, function = draw.choice(masks), draw.choice([torch.tanh, torch.sin, torch.exp])
    nested = draw.random() < 0.5
    torch.manual_seed(batched_seed)

    def of_sample(x: Tensor) -> tuple[Tensor, Tensor]:
        def value(y: Tensor) -> tuple[Tensor, Tensor]:
            kept = masked(function(y))
            return kept.sum(), kept.detach()

        return func_grad(value, has_aux=True)(x)

    def loss(model: Any, b: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        x = model(b["x"])
        of_each = vmap(of_sample, randomness=randomness) if nested else of_sample
        slopes, kept = vmap(of_each, randomness=randomness)(x)
        y = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(function(y).sum(), y)
        mask = kept / function(y)
        return kept.square().mean() + slopes.mean(), {"mask": mask.detach(), "wrong": slopes - slope * mask}

    model = torch.nn.Linear(WIDTH, 64).double()
    batch = {"x": torch.randn(2 * SAMPLES, ROWS, WIDTH, dtype=torch.float64)}
    step = compiled(model, cast(Any, loss), batch)
    step.train_step(batch)
    mask = step.outputs["mask"].round()
    assert step.outputs["wrong"].abs().max() < 1e-9
    assert set(mask.unique().tolist()) == {0, 2 if masked is dropped else 1}
    of_samples = {tuple(each.flatten().tolist()) for each in (mask.flatten(0, 1) if nested else mask)}
    assert len(of_samples) == (1 if randomness == "same" else 2 * SAMPLES * (ROWS if nested else 1))
