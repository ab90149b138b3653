"""Bodies of training loops as people write them: each made twice, once to be compiled and once for torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from written_optimizers import RIGHT

Body = Callable[..., Any]
Batches = Callable[[torch.Generator], Any]


@dataclass
class World:
    """A body, what it trains, and what a batch is."""

    body: Body
    models: list[nn.Module]
    optimizers: list[torch.optim.Optimizer]
    schedulers: list[Any] = field(default_factory=list[Any])
    batch: Batches = lambda draw: {
        "x": torch.randn(6, 4, generator=draw),
        "t": torch.randn(6, 2, generator=draw),
    }
    spreads: bool = False
    """Whether the body takes the members of a batch as arguments of their own."""
    loose: list[torch.Tensor] = field(default_factory=list[torch.Tensor])
    """What it trains or writes to outside of the models."""

    def tensors(self) -> list[torch.Tensor]:
        """Parameters, buffers and the optimizers' state."""
        own = [t for model in self.models for t in (*model.parameters(), *model.buffers())]
        states = [
            o.state[p] for o in self.optimizers for g in o.param_groups for p in g["params"] if o.state[p]
        ]
        return [
            *own,
            *self.loose,
            *(torch.as_tensor(value) for state in states for _, value in sorted(state.items())),
        ]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def usual() -> World:
    model = mlp()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=200)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        scheduler.step()
        return loss

    return World(body, [model], [opt], [scheduler])


def zero_at_the_end() -> World:
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def body(batch: Any) -> None:
        F.mse_loss(model(batch["x"]), batch["t"]).backward()
        opt.step()
        opt.zero_grad()

    return World(body, [model], [opt])


def zero_to_zeros() -> World:
    model = mlp()
    unused = nn.Linear(3, 3)
    opt = torch.optim.Adam([*model.parameters(), *unused.parameters()], lr=1e-2, weight_decay=0.1)

    def body(batch: Any) -> Any:
        assert unused is not None
        opt.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        opt.step()
        return {"loss": loss, "inner": [loss * 2, (loss.detach().sqrt(),)]}

    return World(body, [model, unused], [opt])


def micro_batches() -> World:
    model = mlp()
    opt = torch.optim.NAdam(model.parameters(), lr=1e-2)

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        model.zero_grad()
        total = torch.zeros((), dtype=x.dtype, device=x.device)
        for part, wanted in zip(x.chunk(3), t.chunk(3), strict=True):
            loss = F.mse_loss(model(part), wanted) / 3
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)
        opt.step()
        return total

    return World(
        body,
        [model],
        [opt],
        batch=lambda draw: (torch.randn(6, 4, generator=draw), torch.randn(6, 2, generator=draw)),
        spreads=True,
    )


def gan() -> World:
    G = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
    D = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_g = torch.optim.RMSprop(G.parameters(), lr=2e-3)
    slower = torch.optim.lr_scheduler.ExponentialLR(opt_g, 0.98)

    def body(batch: Any) -> Any:
        real, noise = batch
        opt_d.zero_grad()
        out = D(real)
        on_real = F.binary_cross_entropy_with_logits(out, torch.ones_like(out))
        on_real.backward()
        fake = G(noise)
        out = D(fake.detach())
        on_fake = F.binary_cross_entropy_with_logits(out, torch.zeros_like(out))
        on_fake.backward()
        opt_d.step()
        opt_g.zero_grad()
        out = D(fake)
        fooled = F.binary_cross_entropy_with_logits(out, torch.ones_like(out))
        fooled.backward()
        opt_g.step()
        slower.step()
        return fooled, {"on_real": on_real, "on_fake": on_fake}

    return World(
        body,
        [G, D],
        [opt_d, opt_g],
        [slower],
        lambda draw: (torch.randn(6, 6, generator=draw), torch.randn(6, 4, generator=draw)),
    )


def critic_ahead() -> World:
    G, D = mlp(), nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    opt_d = torch.optim.RMSprop(D.parameters(), lr=1e-2)
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-2)

    def body(batch: Any) -> Any:
        for x, real in zip(batch["x"].unbind(), batch["t"].unbind(), strict=True):
            opt_d.zero_grad()
            (D(G(x).detach()).mean() - D(real).mean()).backward()
            torch.nn.utils.clip_grad_value_(D.parameters(), 0.05)
            opt_d.step()
        opt_g.zero_grad()
        loss = -D(G(batch["x"][0])).mean()
        loss.backward()
        opt_g.step()
        return loss

    return World(
        body,
        [G, D],
        [opt_d, opt_g],
        batch=lambda draw: {
            "x": torch.randn(3, 6, 4, generator=draw),
            "t": torch.randn(3, 6, 2, generator=draw),
        },
    )


def two_optimizers_one_loss() -> World:
    model = mlp()
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    first = torch.optim.Adagrad(weights, lr=0.05)
    second = torch.optim.SGD([{"params": biases[:1]}, {"params": biases[1:], "lr": 0.5}], lr=0.1)

    def body(batch: Any) -> Any:
        for opt in (first, second):
            opt.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        second.step()
        first.step()
        return loss

    return World(body, [model], [first, second])


def gradients_are_tensors() -> World:
    model = mlp()
    kept = list(model.parameters())
    opt = torch.optim.Adam(kept, lr=1e-2)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in kept])
        with torch.no_grad():
            for p in kept:
                if p.grad is not None and p.dim() > 1:
                    p.grad -= p.grad.mean(dim=1, keepdim=True)
                    p.grad.mul_(1 / (1 + norm))
            assert kept[1].grad is not None
            kept[1].grad = kept[1].grad + 0.01 * kept[1].detach()
        opt.step()
        return loss, norm

    return World(body, [model], [opt])


def frozen_in_between() -> World:
    G, D = mlp(), nn.Linear(2, 1)
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-2)
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-2)

    def set_requires_grad(model: nn.Module, wanted: bool) -> None:
        for p in model.parameters():
            p.requires_grad_(wanted)

    def body(batch: Any) -> Any:
        set_requires_grad(D, False)
        opt_g.zero_grad()
        fake = G(batch["x"])
        loss = D(fake).square().mean()
        loss.backward()
        opt_g.step()
        set_requires_grad(D, True)
        opt_d.zero_grad()
        judged = (D(fake.detach()) - 1).square().mean() + D(batch["t"]).square().mean()
        judged.backward()
        opt_d.step()
        return loss, judged

    return World(body, [G, D], [opt_g, opt_d])


def soft_target() -> World:
    model, target = mlp(), mlp()
    target.load_state_dict(model.state_dict())
    target.requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    def body(batch: Any) -> Any:
        with torch.no_grad():
            wanted = batch["t"] + 0.5 * target(batch["x"])
        loss = F.smooth_l1_loss(model(batch["x"]), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss

    return World(body, [model, target], [opt])


class Trainer:
    """A body as a method, with what it needs in its object."""

    def __init__(self) -> None:
        self.net = mlp()
        self.head = nn.Linear(2, 2)
        self.optim = torch.optim.Adam([*self.net.parameters(), *self.head.parameters()], lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optim, lambda step: 1 / (1 + 0.1 * step))
        self.weight = 0.5

    def loss(self, batch: Any) -> torch.Tensor:
        return self.weight * F.mse_loss(self.head(self.net(batch["x"])), batch["t"])

    def training_step(self, batch: Any) -> Any:
        self.optim.zero_grad()
        loss = self.loss(batch)
        loss.backward()
        self.optim.step()
        self.schedule.step()
        return loss


def in_an_object() -> World:
    trainer = Trainer()
    return World(trainer.training_step, [trainer.net, trainer.head], [trainer.optim], [trainer.schedule])


def tied() -> World:
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    b.weight = a.weight
    out = nn.Linear(4, 2)
    opt = torch.optim.Adam([*a.parameters(), b.bias, *out.parameters()], lr=1e-2)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(out(b(a(batch["x"]).tanh())), batch["t"])
        loss.backward(retain_graph=True)
        (0.1 * loss).backward()
        opt.step()
        return loss

    return World(body, [a, b, out], [opt])


def written() -> World:
    model = mlp()
    opt = RIGHT["adabelief"](model.parameters())

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        return loss

    return World(body, [model], [opt])


def two_written() -> World:
    """Two optimizers that users have written, one with two param groups, beside one of torch, stepped in another order."""
    G, D, E = mlp(), nn.Linear(2, 1), nn.Linear(4, 2)
    opt_e = torch.optim.Adam(E.parameters(), lr=1e-2)
    groups = [{"params": G[0].parameters()}, {"params": G[2].parameters(), "lr": 2e-3}]
    opt_g: Any = RIGHT["adabelief"](groups)
    opt_d: Any = RIGHT["plain-adam"](D.parameters())
    slower = torch.optim.lr_scheduler.StepLR(opt_d, 3, 0.5)

    def body(batch: Any) -> Any:
        for opt in (opt_e, opt_g, opt_d):
            opt.zero_grad()
        fake = G(batch["x"]) + E(batch["x"])
        judged = D(fake.detach()).square().mean() + (D(batch["t"]) - 1).square().mean()
        judged.backward()
        opt_d.step()
        opt_d.zero_grad()
        loss = (D(fake) - 1).square().mean() + F.mse_loss(fake, batch["t"])
        loss.backward()
        opt_g.step()
        opt_e.step()
        slower.step()
        return loss, judged

    return World(body, [G, D, E], [opt_e, opt_g, opt_d], [slower])


class Layer(nn.Linear):
    """A layer that trains itself."""

    def __init__(self) -> None:
        super().__init__(4, 2)
        self.opts = {"own": torch.optim.Adam(self.parameters(), lr=1e-2)}

    def trained(self, batch: Any) -> torch.Tensor:
        loss = F.mse_loss(self.forward(batch["x"]), batch["t"])
        self.opts["own"].zero_grad()
        loss.backward()
        self.opts["own"].step()
        return loss


def models_hold_optimizers() -> World:
    layers: Any = nn.ModuleList([Layer(), Layer()])
    optimizers = [layer.opts["own"] for layer in layers]
    return World(lambda batch: [layer.trained(batch) for layer in layers], [layers], optimizers)


BODIES: dict[str, Callable[[], World]] = {
    make.__name__: make
    for make in (
        usual,
        zero_at_the_end,
        zero_to_zeros,
        micro_batches,
        gan,
        critic_ahead,
        two_written,  # in the middle of samples: the longest
        two_optimizers_one_loss,
        gradients_are_tensors,
        frozen_in_between,
        soft_target,
        in_an_object,
        tied,
        written,
        models_hold_optimizers,
    )
}
