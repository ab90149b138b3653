"""The gamma function's logarithm and its derivative beside torch's, and distributions that have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from beside_torch import assert_trains
from torch import Tensor, distributions, nn
from torch.nn.functional import softplus

from aicf_mlir.frontend.gamma import digamma, lgamma, mvlgamma

PLACES = torch.cat(
    [
        torch.linspace(-20.3, 60, 2001, dtype=torch.float64),
        torch.logspace(-300, 300, 601, dtype=torch.float64),
        -torch.logspace(-300, 14, 401, dtype=torch.float64),
        torch.tensor([0.0, -0.0, -1, -2, 1, 2, math.inf, -math.inf, math.nan, 1 + 1e-9], dtype=torch.float64),
    ]
)


def near(got: Tensor, want: Tensor, relative: float) -> Tensor:
    same = (got == want) | (got.isnan() & want.isnan())
    return same | ((got - want).abs() <= relative * (want.abs() + 0.1))


@pytest.mark.parametrize(("ours", "theirs"), [(lgamma, torch.lgamma), (digamma, torch.digamma)])
def test_values_and_gradients_are_those_of_torch(
    ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor]
) -> None:
    assert bool(near(ours(PLACES), theirs(PLACES), 1e-11).all())
    for dtype in (torch.float32, torch.bfloat16):
        assert ours(PLACES.to(dtype)).dtype is dtype
        assert bool(near(ours(PLACES.to(dtype)), theirs(PLACES.to(dtype)), 1e-2).all())
    assert ours(torch.arange(1, 5)).dtype is torch.float32
    at_pole = (PLACES < 0) & (PLACES.round() == PLACES)  # their value is no number, or infinite
    places = PLACES[(PLACES > -1000) & ~at_pole]
    one, other = places.clone().requires_grad_(), places.clone().requires_grad_()
    ours(one).sum().backward()
    theirs(other).sum().backward()
    assert one.grad is not None
    assert other.grad is not None
    assert bool(near(one.grad, other.grad, 1e-9).all())


def test_the_multivariate_form() -> None:
    x = torch.rand(50, dtype=torch.float64) * 9 + 2
    assert torch.allclose(mvlgamma(x, 4), torch.mvlgamma(x, 4), rtol=1e-12)
    with pytest.raises(ValueError, match="greater than"):
        mvlgamma(torch.tensor([1.0]), 4)


def gamma(h: Tensor, t: Tensor) -> Tensor:
    return distributions.Gamma(softplus(h[:, 0]) + 0.1, softplus(h[:, 1]) + 0.1).log_prob(t.abs() + 0.1)


def student(h: Tensor, t: Tensor) -> Tensor:
    return distributions.StudentT(softplus(h[:, 0]) + 1.0, h[:, 1], 1.5).log_prob(t)


def negative_binomial(h: Tensor, t: Tensor) -> Tensor:
    count = torch.round(3 * t.abs())
    return distributions.NegativeBinomial(softplus(h[:, 0]) + 0.1, logits=h[:, 1]).log_prob(count)


def poisson(h: Tensor, t: Tensor) -> Tensor:
    return distributions.Poisson(softplus(h[:, 0]) + 0.1).log_prob(torch.round(3 * t.abs()))


def beta(h: Tensor, t: Tensor) -> Tensor:
    own = distributions.Beta(softplus(h[:, 0]) + 0.1, softplus(h[:, 1]) + 0.1)
    return own.log_prob(t.sigmoid()) - distributions.kl_divergence(own, distributions.Beta(2.0, 3.0))


def dirichlet(h: Tensor, t: Tensor) -> Tensor:
    own = distributions.Dirichlet(softplus(h) + 0.1)
    return own.log_prob(torch.stack([t.sigmoid(), 1 - t.sigmoid()], -1)) + 0.1 * own.entropy()


@pytest.mark.parametrize("likelihood", [gamma, student, negative_binomial, poisson, beta, dirichlet])
def test_a_likelihood_trains_as_in_torch(likelihood: Callable[[Tensor, Tensor], Tensor]) -> None:
    def loss(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        return -likelihood(model(batch["x"]), batch["t"]).mean()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    batch = {"x": torch.randn(20, 3, dtype=torch.float64), "t": torch.randn(20, dtype=torch.float64)}
    assert_trains(model, loss, batch, 1e-9)
