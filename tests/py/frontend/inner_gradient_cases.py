"""Losses that take gradients themselves, as users of physics-informed networks, penalties and meta-learning write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable, grad
from torch.func import functional_call
from torch.nn import functional as F

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Batch], torch.Tensor]


def tanh_net(inputs: int = 2, outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, outputs))


def points(*names: str, width: int = 1, rows: int = 6) -> Batch:
    draw = torch.Generator().manual_seed(3)
    return {name: torch.rand(rows, width, generator=draw, dtype=torch.float64) for name in names}


def slope(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad(y, x, grad_outputs=torch.ones_like(y), create_graph=True)[0]


def burgers(model: Any, b: Batch) -> torch.Tensor:
    x, t = b["x"].requires_grad_(), b["t"].requires_grad_()
    u = model(torch.cat([x, t], 1))
    u_x, u_t = grad(u, [x, t], torch.ones_like(u), create_graph=True)
    residual = u_t + u * u_x - 0.01 / math.pi * slope(u_x, x)
    start = model(torch.cat([x, torch.zeros_like(t)], 1)) + torch.sin(math.pi * x)
    return residual.square().mean() + start.square().mean()


def kdv(model: Any, b: Batch) -> torch.Tensor:
    x = b["x"].clone().requires_grad_(True)
    t = b["t"].clone()
    t.requires_grad = True
    u = model(torch.hstack((x, t)))
    u_x = slope(u, x)
    return (slope(u, t) + 6 * u * u_x + slope(slope(u_x, x), x)).square().mean()


def deep_ritz(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    u = model(x)
    energy = 0.5 * slope(u.sum(), x).square().sum(1) - u[:, 0]
    return energy.mean() + 10 * model(b["x"].repeat(1, 2)).square().mean()


def laplacian(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    first = slope(model(x), x)
    return sum(slope(first[:, i], x)[:, i] for i in range(2)).square().mean()  # type: ignore[union-attr]


def wgan_gp(model: Any, b: Batch) -> torch.Tensor:
    share = b["x"]
    between = (share * b["z"] + (1 - share) * b["w"]).requires_grad_(True)
    scores = model(between)
    found = grad(
        outputs=scores,
        inputs=between,
        grad_outputs=torch.ones(scores.size()).to(scores),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    penalty = ((found.norm(2, dim=1) - 1) ** 2).mean()
    return model(b["w"]).mean() - model(b["z"]).mean() + 10 * penalty


def r1(model: Any, b: Batch) -> torch.Tensor:
    real = b["z"].detach().requires_grad_()
    scores = model(real)
    (found,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
    return F.softplus(-scores).mean() + 5 * found.pow(2).reshape(len(found), -1).sum(1).mean()


def of_hidden(model: Any, b: Batch) -> torch.Tensor:
    hidden = model[:2](b["z"])
    (found,) = grad(model[2:](hidden).sum(), hidden, create_graph=True)
    return (found * hidden).square().mean()


def one_of_equal(model: Any, b: Batch) -> torch.Tensor:
    """Two values that are computed alike are two."""
    one, other = torch.tanh(b["z"] @ model[0].weight.t()), torch.tanh(b["z"] @ model[0].weight.t())
    (found,) = grad((one * other * other).sum(), one, create_graph=True)
    return (found * one).sum() + model(b["z"]).mean()


def two_leaves(model: Any, b: Batch) -> torch.Tensor:
    one, other = b["z"].detach().requires_grad_(), b["z"].detach().requires_grad_()
    (found,) = grad((model(one) * model(other)).sum(), one, create_graph=True)
    return found.square().mean()


def gradient_norm(model: Any, b: Batch) -> torch.Tensor:
    loss = F.mse_loss(model(b["z"]), b["x"])
    found = grad(loss, list(model.parameters()), create_graph=True)
    return loss + 0.1 * torch.stack([g.norm() for g in found]).sum()


def maml(model: Any, b: Batch) -> torch.Tensor:
    weights = dict(model.named_parameters())
    for _ in range(2):
        loss = F.mse_loss(functional_call(model, weights, (b["z"],)), b["x"])
        found = grad(loss, tuple(weights.values()), create_graph=True)
        weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), found, strict=True)}
    return F.mse_loss(functional_call(model, weights, (b["w"],)), b["t"])


def first_order_maml(model: Any, b: Batch) -> torch.Tensor:
    weights = dict(model.named_parameters())
    loss = F.mse_loss(functional_call(model, weights, (b["z"],)), b["x"])
    found = grad(loss, tuple(weights.values()))
    weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), found, strict=True)}
    return F.mse_loss(functional_call(model, weights, (b["w"],)), b["t"])


def hutchinson(model: Any, b: Batch) -> torch.Tensor:
    x, v = b["z"].requires_grad_(), b["w"].sign()
    score = model(x)
    (found,) = grad(score, x, v, create_graph=True)
    return (0.5 * score.square().sum(1) + (found * v).sum(1)).mean()


def seeds_with_gradients(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x)
    (found,) = grad(y, x, y * y, create_graph=True)
    return found.square().mean()


def unused(model: Any, b: Batch) -> torch.Tensor:
    x, other = b["z"].requires_grad_(), b["w"].requires_grad_()
    found = grad(model(x).sum(), [x, other], create_graph=True, allow_unused=True)
    assert found[1] is None
    (zero,) = grad(model(x).sum(), [other], create_graph=True, allow_unused=True, materialize_grads=True)
    return found[0].square().mean() + zero.sum()


def linear_in_x(model: Any, b: Batch) -> torch.Tensor:
    """The second derivative of a linear function is unused in torch."""
    x = b["z"].requires_grad_()
    y = x @ model[0].weight.t()
    (first,) = grad(y.sum(), x, create_graph=True)
    assert grad(first.sum(), x, create_graph=True, allow_unused=True) == (None,)
    return first.square().mean()


def batched(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x)
    rows = torch.eye(2, dtype=y.dtype)[:, None, :].expand(2, *y.shape)
    (jacobian,) = grad(y, x, rows, create_graph=True, is_grads_batched=True)
    return jacobian.square().mean()


def several_outputs(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x)
    (found,) = grad([y.sum(), y.square().mean()], [x], create_graph=True)
    return found.square().sum()


def in_place(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x * 1.0)
    y *= 2
    y[:, 0] += x[:, 0]
    first = slope(y, x)
    first += 1
    return slope(first.square(), x).square().mean() + first.mean()


def from_factory(model: Any, b: Batch) -> torch.Tensor:
    x = torch.linspace(0, 1, 6, dtype=torch.float64, requires_grad=True)
    u = model(x[:, None].expand(6, 2))
    return (slope(u, x) + b["x"]).square().mean()


def detached(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    y = model(x)
    first = slope(y * y.detach(), x)
    with torch.no_grad():
        scale = first.norm()
    return (first / scale.clamp(min=1e-3)).pow(3).mean()


def inside_no_grad(model: Any, b: Batch) -> torch.Tensor:
    """A target by a gradient, through which nothing flows: guidance."""
    x = b["z"].requires_grad_()
    with torch.enable_grad():
        energy = model(x).square().sum()
    with torch.no_grad():
        moved = x - 0.1 * grad(energy, x)[0]
    return F.mse_loss(model(moved), b["x"])


def langevin(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].clone()
    for _ in range(3):
        x = x.detach().requires_grad_()
        x = x - 0.1 * grad(model(x).sum(), x)[0] + 0.01 * b["w"]
    return model(b["z"]).mean() - model(x.detach()).mean()


def hamiltonian(model: Any, b: Batch) -> torch.Tensor:
    state = b["z"].requires_grad_()
    energy = model(state).sum()
    dq, dp = slope(energy, state).chunk(2, dim=1)
    return F.mse_loss(torch.cat([dp, -dq], 1), b["w"])


def forces(model: Any, b: Batch) -> torch.Tensor:
    place = torch.cat([b["z"], b["x"]], 1).requires_grad_()
    away = place[:, None] - place[None]
    distance = (away.square().sum(-1) + torch.eye(6, dtype=place.dtype)).sqrt()
    centers = torch.linspace(0, 2, 2, dtype=place.dtype)
    energy = (
        model(torch.exp(-(distance[..., None] - centers).square())).squeeze(-1) * (distance < 1.5)
    ).sum()
    force = -grad(energy, place, create_graph=True)[0]
    return F.mse_loss(force, b["w"].repeat(1, 2)[:, :3]) + 0.01 * energy.square()


def jacobian_norm(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    logits = model(x)
    rows = [grad(logits[:, k].sum(), x, create_graph=True)[0] for k in range(logits.shape[1])]
    loss = F.cross_entropy(logits, (b["x"][:, 0] > 0.5).long())
    return loss + 0.1 * torch.stack(rows).square().sum() / len(x)


def adversarial(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    target = (b["x"][:, 0] > 0.5).long()
    loss = F.cross_entropy(model(x), target)
    (found,) = grad(loss, x, retain_graph=True)
    return loss + F.cross_entropy(model((x + 0.1 * found.sign()).detach()), target)


def double_backprop(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    loss = F.cross_entropy(model(x), (b["x"][:, 0] > 0.5).long(), label_smoothing=0.1)
    (found,) = grad(loss, x, create_graph=True)
    return loss + found.square().sum()


def vanishing(model: Any, b: Batch) -> torch.Tensor:
    """The gradient of a network of ReLU: some parameters have a gradient of 0, and one has none."""
    x = b["z"].requires_grad_()
    return slope(model(x), x).square().mean()


class Siren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.clone().detach().requires_grad_(True)
        return self.last(torch.sin(3 * self.second(torch.sin(3 * self.first(x))))), x


def siren(model: Any, b: Batch) -> torch.Tensor:
    value, x = model(b["z"])
    normal = slope(value, x)
    away = 1 - F.cosine_similarity(normal, b["w"], dim=-1)
    return value.abs().mean() + away.mean() + (normal.norm(dim=-1) - 1).abs().mean()


class Blocks(nn.Module):
    """Layers with a fused gradient each: attention, layer norm, gelu, a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.out = nn.Linear(2, 8), nn.LayerNorm(8), nn.Linear(8, 1)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)[None]
        h = h + self.attend(h, h, h)[0]
        h = F.gelu(self.norm(h))
        return self.out(F.silu(self.conv(h.transpose(1, 2)).transpose(1, 2))[0])


def fused(model: Any, b: Batch) -> torch.Tensor:
    x = b["z"].requires_grad_()
    return model(x).square().mean() + slope(model(x), x).square().mean()


def by_variable(model: Any, b: Batch) -> torch.Tensor:
    """As old code makes a leaf, and cuts a gradient."""
    between = Variable(0.3 * b["z"] + 0.7 * b["w"], requires_grad=True)
    (found,) = grad(model(between).sum(), between, create_graph=True)
    return (found.norm(2, dim=1) - 1).square().mean() + (model(b["z"]) * Variable(model(b["w"]))).mean()


OWN_POINTS = torch.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True, device="cpu").double()
"""Points that are computed from a leaf which nobody holds."""


def of_own_points(model: Any, b: Batch) -> torch.Tensor:
    return slope(model(OWN_POINTS), OWN_POINTS).square().mean() + model(b["z"]).square().mean()


CASES: dict[str, tuple[Callable[[], nn.Module], Loss]] = {
    "Variable": (tanh_net, by_variable),
    "of points that are computed before": (tanh_net, of_own_points),
    "Burgers": (tanh_net, burgers),
    "KdV, third order": (tanh_net, kdv),
    "deep Ritz": (tanh_net, deep_ritz),
    "Laplacian": (tanh_net, laplacian),
    "WGAN-GP": (tanh_net, wgan_gp),
    "R1": (tanh_net, r1),
    "of a hidden value": (tanh_net, of_hidden),
    "one of two equal values": (tanh_net, one_of_equal),
    "two leaves of one tensor": (tanh_net, two_leaves),
    "norm of the gradients": (tanh_net, gradient_norm),
    "MAML": (tanh_net, maml),
    "first-order MAML": (tanh_net, first_order_maml),
    "Hutchinson": (lambda: tanh_net(2, 2), hutchinson),
    "seeds with gradients": (lambda: tanh_net(2, 2), seeds_with_gradients),
    "unused": (tanh_net, unused),
    "linear": (tanh_net, linear_in_x),
    "batched": (lambda: tanh_net(2, 2), batched),
    "several outputs": (tanh_net, several_outputs),
    "in place": (lambda: tanh_net(2, 2), in_place),
    "a leaf from a factory": (tanh_net, from_factory),
    "detached": (tanh_net, detached),
    "inside no_grad": (tanh_net, inside_no_grad),
    "Langevin": (tanh_net, langevin),
    "Hamiltonian": (tanh_net, hamiltonian),
    "forces": (tanh_net, forces),
    "Jacobian norm": (lambda: tanh_net(2, 3), jacobian_norm),
    "adversarial": (lambda: tanh_net(2, 3), adversarial),
    "double backpropagation": (lambda: tanh_net(2, 3), double_backprop),
    "vanishing": (lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)), vanishing),
    "SIREN with normals": (Siren, siren),
    "fused gradients": (Blocks, fused),
}
"""A model and a loss of float64 each."""


def a_batch() -> Batch:
    return points("x", "t") | points("z", "w", width=2)
