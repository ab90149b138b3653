"""Train an interatomic potential on energies and forces: the forces are a gradient of the energy, inside the loss.

The truth is a Morse potential between the atoms of small random clusters. The network sends messages along all pairs, as
SchNet does, and knows nothing of it but energies and forces.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

from aicf_mlir import compile_train_step, default_device

ATOMS, WIDTH, CENTERS = 6, 32, 16
CUTOFF = 4.0

Batch = dict[str, torch.Tensor]


def distances(places: torch.Tensor) -> torch.Tensor:
    """The distances of all pairs of each cluster, [clusters, atoms, atoms]; 1 from an atom to itself."""
    away = places[:, :, None] - places[:, None]
    return (away.square().sum(-1) + torch.eye(places.shape[1], device=places.device)).sqrt()


def truth(places: torch.Tensor) -> torch.Tensor:
    """The energy of each cluster: a Morse potential with its minimum -1 at a distance of 1.2."""
    stretched = 1 - torch.exp(-1.5 * (distances(places) - 1.2))
    pairs = (stretched.square() - 1) * (1 - torch.eye(places.shape[1], device=places.device))
    return 0.5 * pairs.sum((1, 2))


class Potential(nn.Module):
    """The energy of each cluster of [clusters, atoms, 3] places."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = nn.Parameter(torch.randn(WIDTH))
        self.filters = nn.ModuleList(
            nn.Sequential(nn.Linear(CENTERS, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.mixers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH)) for _ in range(2)
        )
        self.out = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.register_buffer("centers", torch.linspace(0.5, CUTOFF, CENTERS))
        self.register_buffer("others", 1 - torch.eye(ATOMS))

    def forward(self, places: torch.Tensor) -> torch.Tensor:
        away = distances(places)
        spread = torch.exp(-8 * (away[..., None] - self.centers).square())
        near = 0.5 * (torch.cos(away.clamp(max=CUTOFF) * torch.pi / CUTOFF) + 1) * self.others
        h = self.kind.expand(*places.shape[:2], WIDTH)
        for filters, mixer in zip(self.filters, self.mixers, strict=True):
            weights = filters(spread) * near[..., None]
            h = h + mixer((weights * h[:, None]).sum(2))
        return self.out(h).sum((1, 2))


def forces(energy: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The forces on all atoms; a loss can be made of them."""
    return -torch.autograd.grad(energy.sum(), places, create_graph=True)[0]


def loss_of(model: nn.Module, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Mean squared errors of the energy of an atom and of the forces; the latter is shown, too."""
    places = batch["places"].requires_grad_()
    energy = model(places)
    of_energy = ((energy - batch["energy"]) / ATOMS).square().mean()
    of_forces = (forces(energy, places) - batch["forces"]).square().mean()
    return of_energy + of_forces, {"forces": of_forces}


def clusters(count: int, device: torch.device) -> Batch:
    """Random clusters near the corners of a box, with the true energies and forces."""
    corners = torch.cartesian_prod(*[torch.arange(2.0, device=device)] * 3)[:ATOMS]
    places = (1.3 * corners + 0.2 * torch.randn(count, ATOMS, 3, device=device)).requires_grad_()
    energy = truth(places)
    found = forces(energy, places)
    return {"places": places.detach(), "energy": energy.detach(), "forces": found.detach()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    model = Potential().to(device)
    adam = torch.optim.Adam(model.parameters(), lr=2e-3)
    batch = clusters(32, device)
    step = compile_train_step(model, adam, loss_fn=loss_of, example=batch, device=device)
    step.warmup(batch)
    step.capture(batch)
    started = time.perf_counter()
    for _ in range(options.steps):
        step.replay(inputs=clusters(32, device))
    print(f"{(time.perf_counter() - started) / options.steps * 1e3:.2f} ms a step, with its clusters")

    held_out = clusters(256, device)
    found = forces(model(places := held_out["places"].requires_grad_()), places).detach()
    error = (found - held_out["forces"]).square().mean().sqrt() / held_out["forces"].square().mean().sqrt()
    print(f"error of the forces on new clusters: {error:.3f} of the forces")


if __name__ == "__main__":
    main()
