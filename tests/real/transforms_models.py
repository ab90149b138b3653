"""Losses by transforms of torch.func, and gradients of published networks: tangent kernels, ensembles, forces."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from egnn_pytorch import EGNN
from torch import Tensor, nn
from torch.autograd import Variable, grad
from torch.func import functional_call, jacrev, stack_module_state, vjp, vmap
from torch_geometric.nn import SchNet

from tests.real.case import Batch, Make, Work, trained
from tests.real.coordinates import ROWS, drawn, mlp, slope

jvp: Any = torch.func.jvp
gradient: Any = torch.func.grad

ATOMS = 6


class Convolutional(nn.Module):
    """The network of torch's tutorial on tangent kernels, smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3)])
        self.last = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.last(x.flatten(1))


def of_one(model: nn.Module) -> Any:
    return lambda weights, x: functional_call(model, weights, (x[None],))[0]


def kernel_by_jacobians(m: Any, b: Batch) -> Tensor:
    weights = dict(m.named_parameters())
    one, other = (vmap(jacrev(of_one(m)), (None, 0))(weights, b[name]) for name in "xy")
    parts = [torch.einsum("Naf,Mbf->NMab", one[k].flatten(2), other[k].flatten(2)) for k in one]
    return torch.stack(parts).sum(0).square().mean()


def kernel_by_products(m: Any, b: Batch) -> Tensor:
    """Each column of the kernel is a product forwards of a product backwards."""
    weights, output = dict(m.named_parameters()), of_one(m)

    def of_pair(x: Tensor, y: Tensor) -> Tensor:
        value, pull = vjp(lambda w: output(w, x), weights)

        def column(seed: Tensor) -> Tensor:
            return jvp(lambda w: output(w, y), (weights,), pull(seed))[1]

        return vmap(column)(torch.eye(value.numel(), dtype=value.dtype, device=value.device))

    return vmap(vmap(of_pair, (None, 0)), (0, None))(b["x"], b["y"]).square().mean()


def stacked() -> Work:
    """Several networks as one, whose modules lie on meta."""
    networks = [mlp(4, 16, 3, middle=nn.ReLU) for _ in range(5)]
    weights, _ = stack_module_state(networks)
    base = copy.deepcopy(networks[0]).to("meta")
    names = list(weights)
    model = nn.ParameterList([weights[name].detach() for name in names])

    def loss(m: Any, b: Batch) -> Tensor:
        found = vmap(lambda w, x: functional_call(base, w, (x,)), (0, None))(
            dict(zip(names, m, strict=True)), b["x"]
        )
        return F.cross_entropy(found.flatten(0, 1), b["label"].repeat(len(networks)))

    return trained(model, lambda: {"x": torch.rand(ROWS, 4), "label": torch.randint(3, (ROWS,))}, loss)


def maml_by_vmap(m: Any, b: Batch) -> Tensor:
    """One step of each task inside."""
    weights = dict(m.named_parameters())

    def error(w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return (functional_call(m, w, (x,)) - y).square().mean()

    def of_task(x: Tensor, y: Tensor, far_x: Tensor, far_y: Tensor) -> Tensor:
        found = gradient(error)(weights, x, y)
        return error({name: w - 0.1 * found[name] for name, w in weights.items()}, far_x, far_y)

    losses = vmap(of_task)(b["x"], b["y"], b["far x"], b["far y"])
    return sum(losses) / len(losses)  # type: ignore[return-value]


def pair_potential(m: Any, b: Batch) -> Tensor:
    """Energies of distances, and forces by the Jacobian of each."""
    distance = b["away"].norm(dim=1).reshape(-1, 1)
    forces = -vmap(jacrev(m))(distance).squeeze(-1) * b["away"] / distance
    return F.mse_loss(m(distance), b["energy"]) + 0.01 * F.mse_loss(forces, b["forces"])


def whole_jacobian(m: Any, b: Batch) -> Tensor:
    """The gradient of each output of each row: as many rows as a batch has outputs."""
    return jacrev(m)(b["x"]).square().sum() / ROWS


class PairsOfAll(nn.Module):
    """All pairs of atoms, without a search for near ones."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs = torch.stack(torch.where(~torch.eye(ATOMS, dtype=torch.bool)))

    def forward(self, places: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.pairs
        return self.pairs, (places[first] - places[second]).norm(dim=-1)


def schnet() -> Work:
    model = SchNet(16, 16, 2, 8, 5.0)
    model.interaction_graph = PairsOfAll()
    kinds = torch.tensor([6, 1, 1, 8, 7, 1])

    def loss(m: Any, b: Batch) -> Tensor:
        places = b["places"].requires_grad_()
        energy = m(kinds, places).sum()
        (found,) = grad(energy, places, create_graph=True)
        return energy.square() + 10 * (found + b["forces"]).square().mean()

    return trained(model, lambda: {"places": 3 * torch.rand(ATOMS, 3), "forces": torch.rand(ATOMS, 3)}, loss)


def egnn() -> Work:
    model = nn.ModuleDict({"layer": EGNN(dim=8), "out": nn.Linear(8, 1)})

    def loss(m: Any, b: Batch) -> Tensor:
        places = b["places"].requires_grad_()
        features, moved = m["layer"](b["features"], places)
        energy = m["out"](features).sum() + 0.1 * moved.square().sum()
        return 0.01 * energy.square() + slope(energy, places).square().mean()

    return trained(model, drawn(features=(1, ATOMS, 8), places=(1, ATOMS, 3)), loss)


def penalised_by_variable(m: Any, b: Batch) -> Tensor:
    """A gradient penalty as it was written before tensors had gradients themselves."""
    between = Variable(b["share"] * b["real"] + (1 - b["share"]) * b["fake"], requires_grad=True)
    scores = m(between)
    found = grad(scores, between, torch.ones(scores.size()), create_graph=True, retain_graph=True)[0]
    return m(b["fake"]).mean() - m(b["real"]).mean() + 10 * ((found.norm(2, dim=1) - 1) ** 2).mean()


def identified() -> Work:
    """Unknown coefficients of an equation, at points of float32 that are computed from a leaf."""
    x, t = (torch.rand(ROWS, 1, dtype=torch.float64, requires_grad=True).float() for _ in range(2))
    model = nn.ModuleDict({"u": mlp(2, 20, 20, 1)})
    model.register_parameter("speed", nn.Parameter(torch.zeros(1)))

    def loss(m: Any, b: Batch) -> Tensor:
        u = m["u"](torch.cat([x, t], 1))
        u_x = slope(u, x)
        residual = slope(u, t) + m.speed * u * u_x - 0.1 * slope(u_x, x)
        return F.mse_loss(u, b["u"]) + residual.square().mean()

    return trained(model, drawn(u=(ROWS, 1)), loss)


images = drawn(x=(3, 3, 6, 6), y=(2, 3, 6, 6))

CASES: dict[str, Make] = {
    "tangent kernel by Jacobians": lambda: trained(Convolutional(), images, kernel_by_jacobians),
    "tangent kernel by products": lambda: trained(Convolutional(), images, kernel_by_products),
    "ensemble of modules on meta": stacked,
    "MAML by vmap": lambda: trained(
        mlp(1, 20, 1, middle=nn.ReLU),
        drawn(**dict.fromkeys(("x", "y", "far x", "far y"), (4, ROWS, 1))),
        maml_by_vmap,
    ),
    "pair potential": lambda: trained(
        mlp(1, 16, 16, 1), drawn(away=(ROWS, 3), energy=(ROWS, 1), forces=(ROWS, 3)), pair_potential
    ),
    "Jacobian of a whole batch": lambda: trained(mlp(4, 20, 10), drawn(x=(ROWS, 4)), whole_jacobian),
    "torch_geometric SchNet, forces": schnet,
    "egnn, forces": egnn,
    "gradient penalty by Variable": lambda: trained(
        mlp(2, 32, 1, middle=nn.ReLU),
        drawn(share=(ROWS, 1), real=(ROWS, 2), fake=(ROWS, 2)),
        penalised_by_variable,
    ),
    "coefficients of an equation": identified,
}
