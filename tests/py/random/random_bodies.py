"""Random bodies of training loops: one or two models with an optimizer each, and what people write around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from lives import OPTIMIZERS
from loop_bodies import World
from torch import nn
from written_optimizers import RIGHT

ROWS = 12
"""Of a batch."""

WIDTH = 4
"""Of a batch, and of what every network takes and gives."""


def batch_norm() -> nn.Module:
    return nn.BatchNorm1d(WIDTH)


LAYERS: list[Callable[[], nn.Module]] = [
    nn.Tanh,
    lambda: nn.LayerNorm(WIDTH),
    batch_norm,
    nn.GELU,
    nn.Softplus,
]

LOSSES: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    F.mse_loss,
    F.smooth_l1_loss,
    lambda y, t: F.binary_cross_entropy_with_logits(y, (t > 0).to(y)),
    lambda y, t: -(y * t).mean() + 0.1 * y.square().mean(),
]

SCHEDULERS: list[Callable[[torch.optim.Optimizer], Any]] = [
    lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 7),
    lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.05, total_steps=40, cycle_momentum=False),
]


def clip_norm(draw: random.Random) -> Callable[[nn.Module], None]:
    limit, kind = draw.choice((0.01, 0.5, 100.0)), draw.choice((2.0, 1.0, float("inf")))
    return lambda net: void(nn.utils.clip_grad_norm_(net.parameters(), limit, kind))


def clip_value(draw: random.Random) -> Callable[[nn.Module], None]:
    limit = draw.choice((0.01, 0.3))
    return lambda net: nn.utils.clip_grad_value_(net.parameters(), limit)


def scaled(draw: random.Random) -> Callable[[nn.Module], None]:
    factor = draw.choice((0.5, 3.0))

    def change(net: nn.Module) -> None:
        for p in net.parameters():
            if p.grad is not None:
                p.grad.mul_(factor)

    return change


def decayed(draw: random.Random) -> Callable[[nn.Module], None]:
    rate = draw.choice((0.01, 0.2))

    def change(net: nn.Module) -> None:
        for p in net.parameters():
            if p.grad is not None:
                p.grad = p.grad + rate * p.detach()

    return change


def centred(draw: random.Random) -> Callable[[nn.Module], None]:
    def change(net: nn.Module) -> None:
        with torch.no_grad():
            for p in net.parameters():
                if p.grad is not None and p.dim() > 1:
                    p.grad -= p.grad.mean(dim=1, keepdim=True)

    return change


def void(result: object) -> None:
    """Drop what torch returns."""
    del result


CHANGES = (clip_norm, clip_norm, clip_value, scaled, decayed, centred)
"""What is done to the gradients of a network before its optimizer steps."""


@dataclass(frozen=True)
class Phase:
    """A part of a body: the losses of one network, and the step of its optimizer."""

    trained: int
    keeps_zeros: bool
    by_model: bool
    chunks: int
    losses: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...]
    through: str
    """What of the other network is in the loss: "nothing", "behind", "in front", or that "detached"."""
    freezes: bool
    retains: bool
    changes: tuple[Callable[[nn.Module], None], ...]
    twice: bool


def phase(draw: random.Random, trained: int, others: bool) -> Phase:
    through = draw.choice(("nothing", "behind", "in front", "detached")) if others else "nothing"
    losses = tuple(draw.choice(LOSSES) for _ in range(draw.choice((1, 1, 2))))
    return Phase(
        trained,
        draw.random() < 0.3,
        draw.random() < 0.3,
        draw.choice((1, 1, 2, 3)),
        losses,
        through,
        through == "behind" and draw.random() < 0.4,
        draw.random() < 0.3,
        tuple(draw.choice(CHANGES)(draw) for _ in range(draw.choice((0, 0, 1, 2)))),
        draw.random() < 0.15,
    )


def network(draw: random.Random) -> nn.Module:
    hidden, layer = draw.choice((3, 8)), draw.choice(LAYERS)
    # The gradient of a bias in front of a batch norm is rounding alone, and some optimizers scale it up.
    last = nn.Linear(hidden, WIDTH, bias=layer is not batch_norm)
    return nn.Sequential(nn.Linear(WIDTH, hidden), nn.Tanh(), last, layer())


def trained_networks(draw: random.Random) -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    """One or two, each with its optimizer, of torch or of those that users write."""
    nets = [network(draw) for _ in range(draw.choice((1, 1, 2)))]
    written = [RIGHT[name] for name in sorted(RIGHT)]
    kinds = [draw.choice(written if draw.random() < 0.3 else OPTIMIZERS) for _ in nets]
    return nets, [make(net.parameters()) for make, net in zip(kinds, nets, strict=True)]


def random_world(seed: int) -> World:
    """The body with number `seed`, the same each time."""
    draw = random.Random(seed)
    nets, optimizers = trained_networks(draw)
    count = len(nets)
    schedulers = [draw.choice(SCHEDULERS)(o) if draw.random() < 0.4 else None for o in optimizers]
    phases = [phase(draw, trained, count > 1) for trained in range(count)]
    if draw.random() < 0.2:
        phases.append(phase(draw, 0, count > 1))  # a network that is trained twice in a call
    average = network(draw) if draw.random() < 0.25 else None
    if average is not None:
        average.requires_grad_(False)
    kind = draw.choice(("loss", "pair", "dictionary", "nothing"))

    def train(each: Phase, x: torch.Tensor, t: torch.Tensor) -> list[torch.Tensor]:
        net, opt = nets[each.trained], optimizers[each.trained]
        other = nets[1 - each.trained] if count > 1 else net
        if each.freezes:
            other.requires_grad_(False)
        for cleared in nets if each.by_model else optimizers:
            cleared.zero_grad(set_to_none=not each.keeps_zeros)
        found: list[torch.Tensor] = []
        for part, wanted in zip(x.chunk(each.chunks), t.chunk(each.chunks), strict=True):
            if each.through == "in front":
                part = other(part)
            elif each.through == "detached":
                part = other(part).detach()
            y = net(part)
            if each.through == "behind":
                y = other(y)
            for number, loss_of in enumerate(each.losses):
                loss = loss_of(y, wanted) / each.chunks
                loss.backward(retain_graph=each.retains or number + 1 < len(each.losses))
                found.append(loss)
        for change in each.changes:
            change(net)
        opt.step()
        if each.twice:
            opt.step()
        if each.freezes:
            other.requires_grad_(True)
        return found

    def body(batch: Any) -> Any:
        found: list[torch.Tensor] = []
        for each in phases:
            found += train(each, batch["x"], batch["t"])
        if average is not None:
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), nets[0].parameters(), strict=False):
                    if slow.shape == fast.shape:
                        slow.lerp_(fast, 0.25)
        for scheduler in schedulers:
            if scheduler is not None:
                scheduler.step()
        total = torch.stack([loss.detach() for loss in found]).sum()
        returned = {
            "loss": found[-1],
            "pair": (total, {"first": found[0], "rest": found[1:]}),
            "dictionary": {"total": total, "last": found[-1]},
        }
        return returned.get(kind)

    return World(
        body,
        [*nets, *([] if average is None else [average])],
        optimizers,
        [scheduler for scheduler in schedulers if scheduler is not None],
        lambda generator: {
            "x": torch.randn(ROWS, WIDTH, generator=generator),
            "t": torch.randn(ROWS, WIDTH, generator=generator),
        },
    )
