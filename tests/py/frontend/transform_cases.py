"""Losses with the transforms of torch.func and torch.autograd.functional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from inner_gradient_cases import Batch, Loss, tanh_net
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, vmap

Tensor = torch.Tensor

functional: Any = torch.autograd.functional
jvp: Any = torch.func.jvp
linearize: Any = torch.func.linearize
vjp: Any = torch.func.vjp


def of_shadowed(model: Any, b: Batch) -> Tensor:
    """The function reads its argument from outside too, which the gradient does not count."""
    z = b["z"]
    return grad(lambda x: (model(x) * model(z)).sum())(z).square().mean()


def nested(model: Any, b: Batch) -> Tensor:
    def inner(x: Tensor) -> Tensor:
        return grad(lambda y: model(y).sum())(x).square().sum()

    return grad(inner)(b["z"]).square().mean()


def with_value(model: Any, b: Batch) -> Tensor:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = model(x)
        return y.sum(), y

    found, (value, y) = grad_and_value(function, has_aux=True)(b["z"])
    return found.square().mean() + value.square() + y.mean()


def of_parameters(model: Any, b: Batch) -> Tensor:
    def loss(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(model, weights, (b["z"],)).square().mean()

    weights = dict(model.named_parameters())
    moved = {
        name: w - 0.1 * g for (name, w), g in zip(weights.items(), grad(loss)(weights).values(), strict=True)
    }
    return loss(moved)


def backwards(model: Any, b: Batch) -> Tensor:
    value, pull = vjp(model, b["z"])
    return pull(b["x"])[0].square().mean() + value.mean()


def forwards(model: Any, b: Batch) -> Tensor:
    value, along = jvp(model, (b["z"],), (b["w"],))
    return along.square().mean() + value.mean()


def forwards_twice(model: Any, b: Batch) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        return jvp(model, (x,), (b["w"],))[1]

    return jvp(slope, (b["z"],), (b["w"],))[1].square().mean()


def unused_tangent(model: Any, b: Batch) -> Tensor:
    value, along = jvp(lambda x, y: (model(x), y.sin()), (b["z"], b["w"]), (b["w"], b["z"]))
    return along[0].square().mean() + along[1].mean() + value[0].mean()


def per_sample_norms(model: Any, b: Batch) -> Tensor:
    def loss(weights: dict[str, Tensor], x: Tensor, t: Tensor) -> Tensor:
        return (functional_call(model, weights, (x,)) - t).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(dict(model.named_parameters()), b["z"], b["x"])
    return torch.stack([each.flatten(1).norm(dim=1).mean() for each in found.values()]).sum()


def tangent_kernel(model: Any, b: Batch) -> Tensor:
    def output(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(model, weights, (x,)).squeeze(-1)

    weights = dict(model.named_parameters())
    left, right = (vmap(jacrev(output), (None, 0))(weights, x) for x in (b["z"], b["w"]))
    parts = [
        one.flatten(1) @ other.flatten(1).t()
        for one, other in zip(left.values(), right.values(), strict=True)
    ]
    return torch.stack(parts).sum(0).square().mean()


def laplacian(model: Any, b: Batch) -> Tensor:
    second = vmap(hessian(lambda r: model(r).squeeze(-1)))(b["z"])
    return second.diagonal(dim1=-2, dim2=-1).sum(-1).square().mean()


def ensemble(model: Any, b: Batch) -> Tensor:
    """Several perturbed copies of the weights at once."""
    weights = {
        name: w[None] * (1 + b["x"][:3].reshape(3, *[1] * w.dim())) for name, w in model.named_parameters()
    }
    return vmap(lambda w: functional_call(model, w, (b["z"],)))(weights).var(0).mean()


ON_META = nn.Linear(2, 2, device="meta").double()
"""A module without values, which is called with others."""


def ensemble_on_meta(model: Any, b: Batch) -> Tensor:
    weights = {name: torch.stack([w, 2 * w, w.sin()]) for name, w in model.named_parameters()}
    return vmap(lambda w: functional_call(ON_META, w, (b["z"],)))(weights).tanh().var(0).mean()


def nested_batches(model: Any, b: Batch) -> Tensor:
    def row(x: Tensor, shifts: Tensor) -> Tensor:
        return vmap(grad(lambda shift: model(x + shift).sum()))(shifts)

    return vmap(row)(b["z"], torch.stack([b["w"], 2 * b["w"]], 1)).square().mean()


def duals(model: Any, b: Batch) -> Tensor:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(b["z"], b["w"])
        assert forward_ad.unpack_dual(model(b["z"])).tangent is None
        assert forward_ad.unpack_dual(x.detach() * 2).tangent is None
        value, along = forward_ad.unpack_dual(model(x * b["w"]))
        slopes, second = forward_ad.unpack_dual(grad(lambda y: model(y).sum())(x))
    return along.square().mean() + value.mean() + (slopes * second).mean()  # type: ignore[union-attr]


def duals_of_parameters(model: Any, b: Batch) -> Tensor:
    with forward_ad.dual_level():
        weights = {name: forward_ad.make_dual(w, torch.ones_like(w)) for name, w in model.named_parameters()}
        _, along = forward_ad.unpack_dual(functional_call(model, weights, (b["z"],)))
    return along.square().mean()  # type: ignore[union-attr]


def linearized(model: Any, b: Batch) -> Tensor:
    value, along = linearize(lambda x, y: {"a": model(x * y), "b": y.sin()}, b["z"], b["w"])
    one, other = along(b["w"], b["z"]), along(b["z"], b["w"])
    return value["a"].mean() + one["a"].square().mean() + (other["b"] * model(b["z"])).mean()


class Halved(torch.autograd.Function):
    """Its gradient is half of the derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.square()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0]


halved: Any = Halved.apply


def products(model: Any, b: Batch) -> Tensor:
    """Second derivatives of products in which one, two or all numbers are 0."""
    x = model(b["z"]) * torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 0]] * 2).to(b["z"])
    slopes = grad(lambda y: (y.prod(-1).sin() + y[:2].prod()).sum())(x)
    return (slopes * x.cos()).square().mean() + slopes.mean()


CASES: dict[str, tuple[Callable[[], nn.Module], Loss]] = {
    "duals": (tanh_net, duals),
    "duals of parameters": (tanh_net, duals_of_parameters),
    "linearize": (tanh_net, linearized),
    "grad": (tanh_net, lambda m, b: grad(lambda x: m(x).sum())(b["z"]).square().mean()),
    "grad, argument read twice": (tanh_net, of_shadowed),
    "grad of grad": (tanh_net, nested),
    "grad and value": (tanh_net, with_value),
    "grad of parameters": (tanh_net, of_parameters),
    "vjp": (tanh_net, backwards),
    "jvp": (tanh_net, forwards),
    "jvp of jvp": (tanh_net, forwards_twice),
    "jvp of two": (tanh_net, unused_tangent),
    "jacrev": (lambda: tanh_net(2, 2), lambda m, b: jacrev(m)(b["z"]).square().mean()),
    "jacrev in chunks": (
        lambda: tanh_net(2, 2),
        lambda m, b: jacrev(m, chunk_size=5)(b["z"]).square().mean(),
    ),
    "jacfwd": (lambda: tanh_net(2, 2), lambda m, b: jacfwd(m)(b["z"]).square().mean()),
    "hessian": (tanh_net, lambda m, b: hessian(lambda x: m(x).sum())(b["z"][0]).square().mean()),
    "vmap": (tanh_net, lambda m, b: vmap(lambda r, c: m(r * c).sum(), (0, None))(b["z"], b["w"][0]).mean()),
    "vmap, other dimensions": (
        tanh_net,
        lambda m, b: (
            vmap(vmap(lambda r: m(r).sum() * r, in_dims=0, out_dims=1), in_dims=1, out_dims=-1)(b["z"][None])[
                0
            ]
            .square()
            .mean()
        ),
    ),
    "vmap of a function": (
        tanh_net,
        lambda m, b: (
            vmap(grad(lambda r, c: (halved(m(r)) * halved(c)).sum()), (0, None))(b["z"], b["w"][0])
            .square()
            .mean()
        ),
    ),
    "vmap of a function of what rows share": (
        tanh_net,
        lambda m, b: vmap(lambda r: halved(m[0].weight).sum() * halved(m(r)))(b["z"]).square().mean(),
    ),
    "grad of products with zeros": (lambda: tanh_net(2, 3), products),
    "vmap of grad": (
        tanh_net,
        lambda m, b: vmap(grad(lambda r: m(r).sum()))(b["z"]).square().mean(),
    ),
    "vmap of jacrev": (lambda: tanh_net(2, 2), lambda m, b: vmap(jacrev(m))(b["z"]).square().mean()),
    "vmap of hessian": (tanh_net, laplacian),
    "vmap of vmap of grad": (tanh_net, nested_batches),
    "gradients of each sample": (tanh_net, per_sample_norms),
    "tangent kernel": (tanh_net, tangent_kernel),
    "ensemble": (tanh_net, ensemble),
    "ensemble on meta": (lambda: nn.Linear(2, 2), ensemble_on_meta),
    "functional.jacobian": (
        tanh_net,
        lambda m, b: functional.jacobian(m, b["z"], create_graph=True).square().mean(),
    ),
    "functional.jacobian, vectorized": (
        tanh_net,
        lambda m, b: functional.jacobian(m, b["z"], create_graph=True, vectorize=True).square().mean(),
    ),
    "functional.hessian": (
        tanh_net,
        lambda m, b: functional.hessian(lambda x: m(x).sum(), b["z"][0], create_graph=True).square().mean(),
    ),
    "functional.jvp": (
        tanh_net,
        lambda m, b: functional.jvp(m, b["z"], b["w"], create_graph=True)[1].square().mean(),
    ),
    "functional.hvp": (
        tanh_net,
        lambda m, b: (
            functional.hvp(lambda x: m(x).sum(), b["z"], b["w"], create_graph=True)[1].square().mean()
        ),
    ),
}
"""A model and a loss of float64 each."""
