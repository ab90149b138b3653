"""Losses that take gradients themselves: physics-informed networks, potentials, penalties, meta-learning, surrogates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import grad
from torch.func import functional_call, hessian, jacrev, vmap

from tests.real.case import Batch, Make, Work, looped, trained
from tests.real.coordinates import ROWS, drawn, mlp, slope, solved


def burgers(m: Any, b: Batch) -> Tensor:
    x, t = (2 * b["x"] - 1).requires_grad_(), b["t"].requires_grad_()
    u = m(torch.cat([x, t], 1))
    u_x = slope(u, x)
    residual = slope(u, t) + u * u_x - 0.01 / math.pi * slope(u_x, x)
    start = m(torch.cat([x, torch.zeros_like(t)], 1)) + torch.sin(math.pi * x)
    edges = torch.cat([m(torch.cat([torch.full_like(t, side), t], 1)) for side in (-1.0, 1.0)])
    return residual.square().mean() + start.square().mean() + edges.square().mean()


def burgers_by_lbfgs() -> Work:
    work = solved(burgers)()
    lbfgs = torch.optim.LBFGS(work.model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    return replace(work, evaluates=True, optimizers=(lbfgs,))


def navier_stokes(m: Any, b: Batch) -> Tensor:
    """Two dimensions, by a stream function and the pressure, as in the first paper on such networks."""
    x, y, t = (b[name].requires_grad_() for name in "xyt")
    stream, p = m(torch.cat([x, y, t], 1)).split(1, dim=1)
    u, v = slope(stream, y), -slope(stream, x)
    residuals = []
    for w, p_w in ((u, slope(p, x)), (v, slope(p, y))):
        w_x, w_y = slope(w, x), slope(w, y)
        viscous = 0.01 * (slope(w_x, x) + slope(w_y, y))
        residuals.append(slope(w, t) + u * w_x + v * w_y + p_w - viscous)
    return sum(r.square().mean() for r in residuals) + (u - torch.sin(x)).square().mean()  # type: ignore[return-value]


def kdv(m: Any, b: Batch) -> Tensor:
    x, t = b["x"].requires_grad_(), b["t"].requires_grad_()
    u = m(torch.cat([x, t], 1))
    u_x = slope(u, x)
    residual = slope(u, t) + u * u_x + 0.0025 * slope(slope(u_x, x), x)
    return residual.square().mean() + (m(torch.cat([x, 0 * t], 1)) - torch.cos(math.pi * x)).square().mean()


def deep_ritz(m: Any, b: Batch) -> Tensor:
    x = torch.cat([b["x"], b["t"]], 1).requires_grad_()
    u = m(x)
    energy = 0.5 * slope(u, x).square().sum(1, keepdim=True) - u
    return energy.mean() + 100 * m(x.detach().round()).square().mean()


def critic_of_wgan() -> Work:
    maker, critic = mlp(4, 32, 2, middle=nn.ReLU), mlp(2, 32, 32, 1, middle=nn.LeakyReLU)
    of_maker = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.0, 0.9))
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))

    def body(b: Batch) -> Tensor:
        of_critic.zero_grad()
        fake = maker(b["noise"]).detach()
        between = (b["share"] * b["real"] + (1 - b["share"]) * fake).requires_grad_(True)
        scores = critic(between)
        found = grad(scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True)[0]
        penalty = (found.norm(2, dim=1) - 1).square().mean()
        (critic(fake).mean() - critic(b["real"]).mean() + 10 * penalty).backward()
        of_critic.step()
        of_maker.zero_grad()
        loss = -critic(maker(b["noise"])).mean()
        loss.backward()
        of_maker.step()
        return loss

    shapes = {"noise": (ROWS, 4), "share": (ROWS, 1), "real": (ROWS, 2)}
    return looped({"maker": maker, "critic": critic}, drawn(**shapes), body, of_maker, of_critic)


def r1(m: Any, b: Batch) -> Tensor:
    """The penalty of StyleGAN's discriminator, of images."""
    real = b["real"].detach().requires_grad_(True)
    scores = m(real)
    (found,) = grad(outputs=scores.sum(), inputs=real, create_graph=True)
    return (
        F.softplus(-scores).mean()
        + F.softplus(m(b["fake"])).mean()
        + 5 * found.square().sum([1, 2, 3]).mean()
    )


def discriminator() -> nn.Module:
    layers = nn.Conv2d(1, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 8, 3, 2, 1), nn.LeakyReLU(0.2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 1))


def maml(m: Any, b: Batch) -> Tensor:
    total = []
    for task in range(2):
        weights = dict(m.named_parameters())
        for _ in range(3):
            inner = F.mse_loss(functional_call(m, weights, (b["x"][task],)), b["y"][task])
            found = grad(inner, list(weights.values()), create_graph=True)
            weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), found, strict=True)}
        total.append(F.mse_loss(functional_call(m, weights, (b["far x"][task],)), b["far y"][task]))
    return torch.stack(total).mean()


class Siren(nn.Module):
    """Sitzmann's network of sines for signed distances; it makes its coordinates a leaf itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 32), nn.Linear(32, 32)])
        self.out = nn.Linear(32, 1)
        for number, layer in enumerate((*self.layers, self.out)):
            bound = 1 / 3 if number == 0 else math.sqrt(6 / 32) / 30
            nn.init.uniform_(layer.weight, -bound, bound)  # type: ignore[arg-type]

    def forward(self, coordinates: Tensor) -> tuple[Tensor, Tensor]:
        x = h = coordinates.clone().detach().requires_grad_(True)
        for layer in self.layers:
            h = torch.sin(30 * layer(h))
        return self.out(h), x


def distances(m: Any, b: Batch) -> Tensor:
    value, x = m(b["x"])
    normal, surface = slope(value, x), b["on"] > 0.5
    on = torch.where(surface, value, torch.zeros_like(value)).abs().mean()
    off = torch.where(surface, torch.zeros_like(value), torch.exp(-1e2 * value.abs())).mean()
    along = torch.where(surface, 1 - F.cosine_similarity(normal, b["n"], dim=-1)[..., None], 0.0).mean()
    return 3e1 * on + 1e1 * off + 1e1 * along + 5 * (normal.norm(dim=-1) - 1).abs().mean()


class Potential(nn.Module):
    """Energy of atoms by messages along pairs; forces and virial are its gradients."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.kinds = nn.Embedding(3, width)
        self.filters = nn.ModuleList(mlp(8, width, width, middle=nn.Softplus) for _ in range(2))
        self.mixers = nn.ModuleList(mlp(width, width, width, middle=nn.Softplus) for _ in range(2))
        self.out = mlp(width, width, 1, middle=nn.Softplus)
        self.register_buffer("centers", torch.linspace(0, 3, 8))

    def energy(self, away: Tensor, kinds: Tensor, pairs: Tensor) -> Tensor:
        first, second = pairs
        distance = away.norm(dim=-1, keepdim=True)
        spread = torch.exp(-2 * (distance - self.centers).square())
        cutoff = 0.5 * (torch.cos(distance * math.pi / 5) + 1) * (distance < 5)
        h = self.kinds(kinds)
        for filters, mixer in zip(self.filters, self.mixers, strict=True):
            messages = h[second] * filters(spread) * cutoff
            h = h + mixer(torch.zeros_like(h).index_add(0, first, messages))
        return self.out(h).sum()

    def forward(self, b: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Energy, forces [atoms, 3] and virial [3, 3]."""
        places = b["places"].requires_grad_(True)
        strain = torch.zeros(3, 3, requires_grad=True)
        bent = places + places @ (strain + strain.t()) / 2
        first, second = b["pairs"]
        energy = self.energy(bent[second] - bent[first], b["kinds"], b["pairs"])
        force, virial = grad(energy, [places, strain], create_graph=True)
        return energy, -force, -virial


class Tensors(Potential):
    """As TensorNet: each atom has 3 x 3 matrices, in scalar, antisymmetric and symmetric parts, which are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = mlp(8, 24, middle=nn.SiLU)
        self.mix = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))
        self.last = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 16), nn.SiLU(), nn.Linear(16, 1))

    def energy(self, away: Tensor, kinds: Tensor, pairs: Tensor) -> Tensor:
        first, second = pairs
        distance = away.norm(dim=-1, keepdim=True)
        unit, one = away / distance, torch.eye(3, dtype=away.dtype)
        zero = torch.zeros_like(unit[:, 0])
        turned = torch.stack(
            [zero, -unit[:, 2], unit[:, 1], unit[:, 2], zero, -unit[:, 0], -unit[:, 1], unit[:, 0], zero], -1
        )
        outer = unit[:, :, None] * unit[:, None, :] - one / 3
        parts = torch.stack([one.expand_as(outer), turned.reshape(-1, 3, 3), outer], 1)
        spread = torch.exp(-2 * (distance - self.centers).square()) * self.kinds(kinds)[second, :8]
        weights = self.weights(spread).reshape(-1, 3, 8)
        messages = torch.einsum("epc,epij->ecij", weights, parts)
        x = torch.zeros(len(kinds), 8, 3, 3, dtype=away.dtype).index_add(0, first, messages)
        x = x / (x.square().sum((-2, -1), keepdim=True) + 1)
        whole = x.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * one
        anti, sym = 0.5 * (x - x.mT), 0.5 * (x + x.mT) - whole
        mixed = [
            mix(part.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            for mix, part in zip(self.mix, (whole, anti, sym), strict=True)
        ]
        y = sum(mixed)
        x = x + y @ x + x @ y  # type: ignore[operator]
        norms = [part.square().sum((-2, -1)) for part in (x, 0.5 * (x - x.mT), 0.5 * (x + x.mT))]
        return self.last(torch.cat(norms, 1)).sum()


def atoms() -> Batch:
    count = 6
    first, second = torch.where(~torch.eye(count, dtype=torch.bool))
    grid = torch.stack(torch.meshgrid(*[torch.arange(2.0)] * 3, indexing="ij"), -1).reshape(-1, 3)[:count]
    return {
        "places": 1.2 * grid + 0.2 * torch.randn(count, 3),
        "kinds": torch.randint(3, (count,)),
        "pairs": torch.stack([first, second]),
        "energy": torch.randn(()),
        "forces": torch.randn(count, 3),
        "virial": torch.randn(3, 3),
    }


def matched(m: Any, b: Batch) -> Tensor:
    energy, forces, virial = m(b)
    return (
        (energy - b["energy"]).square()
        + 10 * F.mse_loss(forces, b["forces"])
        + F.mse_loss(virial, b["virial"])
    )


def hamiltonian(m: Any, b: Batch) -> Tensor:
    state = b["state"].requires_grad_()
    dq, dp = slope(m(state).sum(), state).chunk(2, dim=1)
    return F.mse_loss(torch.cat([dp, -dq], 1), b["rate"])


def lagrangian(m: Any, b: Batch) -> Tensor:
    """The residual of Euler and Lagrange's equation, without an inverse of the mass matrix."""

    def of_one(q: Tensor, v: Tensor, a: Tensor) -> Tensor:
        def energy(q: Tensor, v: Tensor) -> Tensor:
            return m(torch.cat([q, v])).squeeze(-1)

        mass, mixed = hessian(energy, 1)(q, v), jacrev(jacrev(energy, 1), 0)(q, v)
        return mass @ a + mixed @ v - jacrev(energy, 0)(q, v)

    return vmap(of_one)(*b["state"].chunk(2, 1), b["rate"][:, :2]).square().mean()


def jacobian_regularised(m: Any, b: Batch) -> Tensor:
    """A random projection of the Jacobian, as Hoffman, Roberts and Yaida have it."""
    x = b["x"].requires_grad_(True)
    logits = m(x)
    along = F.normalize(b["along"] - 0.5, dim=1)
    (found,) = grad(logits, x, along, retain_graph=True, create_graph=True)
    return F.cross_entropy(logits, b["label"]) + 0.01 * 3 * found.norm().square() / (2 * ROWS)


def classified() -> Batch:
    return {"x": torch.randn(ROWS, 6), "along": torch.rand(ROWS, 3), "label": torch.randint(3, (ROWS,))}


def score_matching(m: Any, b: Batch) -> Tensor:
    x, along = b["state"].requires_grad_(), (b["rate"] > 0.5).float() * 2 - 1
    score = m(x)
    (found,) = grad(score, x, along, create_graph=True)
    return ((found * along).sum(1) + 0.5 * score.square().sum(1)).mean()


def tangent_kernel(m: Any, b: Batch) -> Tensor:
    """How far the kernel of the network is from that of the labels."""

    def output(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(m, weights, (x[None],)).squeeze()

    found = vmap(jacrev(output), (None, 0))(dict(m.named_parameters()), b["state"])
    rows = torch.cat([each.flatten(1) for each in found.values()], 1)
    kernel, wanted = rows @ rows.t(), b["rate"] @ b["rate"].t()
    return 1 - (kernel * wanted).sum() / (kernel.norm() * wanted.norm())


class Spike(torch.autograd.Function):
    """A step forward, a sigmoid's slope backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return g[0] / (1 + 10 * x.abs()).square()


class Spiking(nn.Module):
    """Leaky neurons over time, with a surrogate gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        apply: Any = Spike.apply
        kept, total = torch.zeros(len(x), 20), torch.zeros(len(x), 3)
        for _ in range(5):
            kept = 0.9 * kept + self.first(x)
            spikes = apply(kept - 1)
            kept = kept - spikes.detach()
            total = total + self.last(spikes)
        return total


class Rounded(torch.autograd.Function):
    """The nearest row of a code book; the gradient goes straight through, and to the book by the commitment loss."""

    @staticmethod
    def forward(x: Tensor, book: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.cdist(x, book).argmin(1)
        return book[index], index

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *g: Any) -> Any:
        return g[0], None


class VQVAE(nn.Module):
    """An autoencoder through a code book, by `detach` or by a function of its own."""

    def __init__(self, is_function: bool) -> None:
        super().__init__()
        self.encode, self.decode = mlp(6, 16, 4, middle=nn.ReLU), mlp(4, 16, 6, middle=nn.ReLU)
        self.book, self.is_function = nn.Parameter(torch.randn(12, 4)), is_function

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        if self.is_function:
            apply: Any = Rounded.apply
            through, index = apply(z, self.book.detach())
            near = self.book[index]
        else:
            near = self.book[torch.cdist(z, self.book).argmin(1)]
            through = z + (near - z).detach()
        return (
            F.mse_loss(self.decode(through), x)
            + F.mse_loss(near, z.detach())
            + 0.25 * F.mse_loss(z, near.detach())
        )


states = drawn(state=(ROWS, 4), rate=(ROWS, 4))

CASES: dict[str, Make] = {
    "Burgers": solved(burgers),
    "Burgers, LBFGS": burgers_by_lbfgs,
    "Navier-Stokes": solved(navier_stokes, outputs=2, inputs=3),
    "KdV": solved(kdv),
    "deep Ritz": solved(deep_ritz),
    "WGAN-GP": critic_of_wgan,
    "R1": lambda: trained(discriminator(), drawn(real=(4, 1, 8, 8), fake=(4, 1, 8, 8)), r1),
    "MAML": lambda: trained(
        mlp(1, 20, 1), drawn(**dict.fromkeys(("x", "y", "far x", "far y"), (2, ROWS, 1))), maml
    ),
    "SIREN with normals": lambda: trained(Siren(), drawn(x=(ROWS, 3), n=(ROWS, 3), on=(ROWS, 1)), distances),
    "SchNet": lambda: trained(Potential(), atoms, matched),
    "TensorNet": lambda: trained(Tensors(), atoms, matched),
    "Hamiltonian": lambda: trained(mlp(4, 20, 1), states, hamiltonian),
    "Lagrangian": lambda: trained(mlp(4, 20, 1), states, lagrangian),
    "Jacobian": lambda: trained(mlp(6, 16, 3), classified, jacobian_regularised),
    "score matching": lambda: trained(mlp(4, 20, 4), states, score_matching),
    "tangent kernel": lambda: trained(mlp(4, 20, 1), states, tangent_kernel),
    "spiking": lambda: trained(Spiking(), classified, lambda m, b: F.cross_entropy(m(b["x"]), b["label"])),
    "spiking, Jacobian": lambda: trained(Spiking(), classified, jacobian_regularised),
    "VQ-VAE": lambda: trained(VQVAE(False), classified, lambda m, b: m(b["x"])),
    "VQ-VAE, function": lambda: trained(VQVAE(True), classified, lambda m, b: m(b["x"])),
}
