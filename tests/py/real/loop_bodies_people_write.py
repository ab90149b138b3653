"""Whole bodies of training loops as people write them, beyond the usual one: by hand, of several passes, with state."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from loop_bodies import World, mlp
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def sgd(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def error(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def sgd_by_hand() -> World:
    model: Any = mlp()

    def body(batch: Any) -> Any:
        model.zero_grad()
        loss = error(model, batch)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        return loss.item()

    return World(body, [model], [])


def sgd_by_data_and_zeros() -> World:
    model: Any = mlp()

    def body(batch: Any) -> Any:
        loss = error(model, batch)
        loss.backward()
        for p in model.parameters():
            p.data.sub_(0.1 * p.grad.data)
            p.grad.zero_()
        return loss

    return World(body, [model], [])


def momentum_by_hand() -> World:
    model: Any = mlp()
    moments = [torch.zeros_like(p) for p in model.parameters()]

    def body(batch: Any) -> Any:
        loss = error(model, batch)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for p, moment, gradient in zip(model.parameters(), moments, gradients, strict=True):
                moment.mul_(0.9).add_(gradient)
                p.add_(moment, alpha=-0.1)
        return loss

    return World(body, [model], [], loose=moments)


def projected_gradients() -> World:
    """PCGrad."""
    model: Any = mlp()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)

    def body(batch: Any) -> Any:
        y, params = model(batch["x"]), list(model.parameters())
        losses = F.mse_loss(y[:, 0], batch["t"][:, 0]), F.l1_loss(y[:, 1], batch["t"][:, 1])
        found = [torch.autograd.grad(loss, params, retain_graph=True) for loss in losses]
        a, b = (torch.cat([g.flatten() for g in each]) for each in found)
        dot = a @ b
        total = torch.where(dot < 0, a + b - dot / b.norm() ** 2 * b - dot / a.norm() ** 2 * a, a + b)
        at = 0
        for p in params:
            p.grad = total[at : at + p.numel()].view_as(p)
            at += p.numel()
        opt.step()
        return losses[0] + losses[1]

    return World(body, [model], [opt])


def sharpness_aware() -> World:
    """SAM: a second gradient, of weights moved along the first."""
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        loss = error(model, batch)
        loss.backward()
        kept = [p.data.clone() for p in model.parameters()]
        norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
        for p in model.parameters():
            p.data.add_(p.grad / (norm + 1e-12), alpha=0.05)
        opt.zero_grad()
        error(model, batch).backward()
        for p, before in zip(model.parameters(), kept, strict=True):
            p.data = before
        opt.step()
        opt.zero_grad()
        return loss

    return World(body, [model], [opt])


def adversarial() -> World:
    """FGSM: the gradient of the input."""
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        x: Any = batch["x"].clone().requires_grad_()
        F.mse_loss(model(x), batch["t"]).backward()
        moved = (batch["x"] + 0.1 * x.grad.sign()).detach()
        opt.zero_grad()
        loss = F.mse_loss(model(moved), batch["t"])
        loss.backward()
        opt.step()
        return loss

    return World(body, [model], [opt])


def projected_descent() -> World:
    """PGD: a leaf of the body's own, written to by .data."""
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        delta: Any = torch.zeros_like(batch["x"], requires_grad=True)
        for _ in range(2):
            F.mse_loss(model(batch["x"] + delta), batch["t"]).backward()
            delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.15, 0.15)
            delta.grad.zero_()
        opt.zero_grad()
        loss = F.mse_loss(model(batch["x"] + delta.detach()), batch["t"])
        loss.backward()
        opt.step()
        return loss.item()

    return World(body, [model], [opt])


def two_halves() -> World:
    """A gradient that is handed on."""
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    both = nn.ModuleList([first, second])
    opt = sgd(both)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        h = first(batch["x"])
        handed: Any = h.detach().requires_grad_()
        loss = F.mse_loss(second(handed.tanh()), batch["t"])
        loss.backward()
        h.backward(handed.grad)
        opt.step()
        return loss

    return World(body, [both], [opt])


def weights_of_gradients() -> World:
    """A loss weighed by norms of gradients, several backward at once, and inputs."""
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        y = model(batch["x"])
        a, b, w = F.mse_loss(y, batch["t"]), y.abs().mean(1), model[2].weight
        (of_a,) = torch.autograd.grad(a, w, retain_graph=True)
        (of_b,) = torch.autograd.grad(b, w, grad_outputs=torch.ones_like(b) / 6, retain_graph=True)
        weight = (of_a.norm() / (of_b.norm() + 1e-4)).clamp(0, 10).detach()
        opt.zero_grad()
        torch.autograd.backward([a, weight * b.mean()], retain_graph=True)
        y.square().mean().backward(inputs=[w])
        opt.step()
        return a, weight.item()

    return World(body, [model], [opt])


def first_order_meta() -> World:
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        params = dict(model.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(model, params, batch["x"]), batch["t"])
        gradients = torch.autograd.grad(inner, list(params.values()))
        fast = {name: p - 0.1 * g for (name, p), g in zip(params.items(), gradients, strict=True)}
        loss = F.mse_loss(torch.func.functional_call(model, fast, batch["x"]), batch["t"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return World(body, [model], [opt])


def closure() -> World:
    model: Any = mlp()
    opt = sgd(model)

    def body(batch: Any) -> Any:
        def again() -> torch.Tensor:
            opt.zero_grad()
            loss = error(model, batch)
            loss.backward()
            return loss

        return opt.step(again)

    return World(body, [model], [opt])


def weights_outside() -> World:
    model, of_losses = mlp(), nn.Parameter(torch.zeros(2))
    opt = torch.optim.Adam([*model.parameters(), of_losses], lr=1e-2)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        y = model(batch["x"])
        losses = torch.stack([F.mse_loss(y, batch["t"]), F.l1_loss(y, batch["t"])])
        loss = (losses * torch.exp(-of_losses) + of_losses).sum()
        loss.backward()
        opt.step()
        return loss

    return World(body, [model], [opt], loose=[of_losses])


def temperature() -> World:
    """SAC's: a leaf that is no nn.Parameter, under an optimizer of its own."""
    model, log_alpha = mlp(), torch.zeros(1, requires_grad=True)
    opt, of_alpha = sgd(model), torch.optim.Adam([log_alpha], lr=1e-2)

    def body(batch: Any) -> Any:
        y = model(batch["x"])
        loss = (F.mse_loss(y, batch["t"]) * log_alpha.exp().detach()).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        of_temperature = -(log_alpha * (y.detach().mean() + 1.0)).mean()
        of_alpha.zero_grad()
        of_temperature.backward()
        of_alpha.step()
        return loss, of_temperature

    return World(body, [model], [opt, of_alpha], loose=[log_alpha])


def averages() -> World:
    """A target that moves, by .data =; averages in a dictionary; a hard copy; slow weights."""
    model, target, copied = mlp(), mlp(), mlp()
    shadow = {name: p.data.clone() for name, p in model.named_parameters()}
    slow = [p.clone().detach() for p in model.parameters()]
    opt = sgd(model)

    def body(batch: Any) -> Any:
        with torch.no_grad():
            wanted = batch["t"] + 0.9 * target(batch["x"])
        loss = F.smooth_l1_loss(model(batch["x"]), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()
        for theirs, ours in zip(target.parameters(), model.parameters(), strict=True):
            theirs.data = theirs.data * 0.9 + ours.data * 0.1
        for name, p in model.named_parameters():
            shadow[name].mul_(0.9).add_(p.data, alpha=0.1)
        for s, p in zip(slow, model.parameters(), strict=True):
            s.add_(p.data - s, alpha=0.5)
            p.data.copy_(s)
        copied.load_state_dict(model.state_dict())
        return loss.item()

    return World(body, [model, target, copied], [opt], loose=[*shadow.values(), *slow])


def averaged_models() -> World:
    """Torch's own, with its two ways to average, with and without buffers."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    swa = AveragedModel(model)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    opt = sgd(model)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = error(model, batch)
        loss.backward()
        opt.step()
        swa.update_parameters(model)
        ema.update_parameters(model)
        return loss

    return World(body, [model, swa, ema], [opt])


def rates() -> World:
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)

    def body(batch: Any) -> Any:
        opt.zero_grad()
        loss = error(model, batch)
        loss.backward()
        opt.step()
        scheduler.step()
        return {"loss": loss.item(), "lr": opt.param_groups[0]["lr"], "last": scheduler.get_last_lr()}

    return World(body, [model], [opt], [scheduler])


def adversaries() -> World:
    """Two players with their numbers returned, the judge's weights clamped."""
    G, D = mlp(), nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    of_g, of_d = torch.optim.Adam(G.parameters(), lr=2e-3), torch.optim.RMSprop(D.parameters(), lr=2e-3)

    def body(batch: Any) -> Any:
        D.zero_grad()
        fake = G(batch["x"])
        judged = D(fake.detach()).mean() - D(batch["t"]).mean()
        judged.backward()
        of_d.step()
        for p in D.parameters():
            p.data.clamp_(-0.1, 0.1)
        G.zero_grad()
        fooled = -D(fake).mean()
        fooled.backward()
        of_g.step()
        return judged.item(), fooled.item()

    return World(body, [G, D], [of_g, of_d])


def parts_of_a_batch() -> World:
    model: Any = mlp()
    opt = sgd(model)
    teacher = copy.deepcopy(model).eval()

    def body(batch: Any) -> Any:
        opt.zero_grad()
        total = 0.0
        for x, t in zip(batch["x"].chunk(3), batch["t"].chunk(3), strict=True):
            with torch.no_grad():
                taught = teacher(x)
            loss = (F.mse_loss(model(x), t) + F.mse_loss(model(x), taught)) / 3
            assert torch.isfinite(loss)
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return World(body, [model, teacher], [opt])


BODIES = {
    make.__name__: make
    for make in (
        sgd_by_hand,
        sgd_by_data_and_zeros,
        momentum_by_hand,
        projected_gradients,
        sharpness_aware,
        adversarial,
        projected_descent,
        two_halves,
        weights_of_gradients,
        first_order_meta,
        closure,
        weights_outside,
        temperature,
        averages,
        averaged_models,
        rates,
        adversaries,
        parts_of_a_batch,
    )
}
