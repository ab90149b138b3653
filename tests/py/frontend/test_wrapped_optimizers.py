"""Optimizers that hold another one, in a loop body: their code is the body's, and the inner one does the step."""
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import Batch, regression
from torch import nn

from aicf_mlir import GuardError, TraceError, compile_step, train_step

STEPS = 4


class Around(torch.optim.Optimizer):
    """Shares the param groups of another optimizer."""

    def __init__(self, inner: torch.optim.Optimizer, **entries: Any):
        super().__init__(inner.param_groups, {**inner.defaults, **entries})
        self.inner = inner
        self.param_groups = inner.param_groups
        for group in self.param_groups:
            group.update(entries)


class Sharp(Around):
    """arXiv:2010.01412 in two steps: to where the loss is larger, and back with the gradient of there."""

    @torch.no_grad()
    def climb(self) -> None:
        grads = [p.grad.norm() for group in self.param_groups for p in group["params"]]
        norm = torch.stack(grads).norm()
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["before"] = p.data.clone()
                p.add_(p.grad * (group["radius"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def descend(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["before"]
        self.inner.step()
        self.zero_grad()


class Passing(Around):
    """Passes each call on, as those of libraries that drive several devices."""

    def step(self, closure: Any = None) -> None:
        del closure
        self.inner.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


def within(step: Any) -> Any:
    """A decorator of a user's own: parameters stay near 0."""

    @functools.wraps(step)
    def clamped(self: Around) -> None:
        step(self)
        for group in self.param_groups:
            for p in group["params"]:
                p.clamp_(-0.3, 0.3)

    return clamped


class Slow(Around):
    """arXiv:1907.08610 with a look ahead of one step, kept in a dictionary of its own."""

    def __init__(self, inner: torch.optim.Optimizer):
        super().__init__(inner)
        self.slow = {p: p.detach().clone() for group in self.param_groups for p in group["params"]}

    @torch.no_grad()
    @within
    def step(self) -> None:
        self.inner.step()
        for group in self.param_groups:
            for p in group["params"]:
                slow = self.slow[p]
                slow.add_(p - slow, alpha=0.5)
                p.copy_(slow)


Made = tuple[nn.Module, Around, Callable[[Batch], torch.Tensor]]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 8)).double()


def sharp(inner: Any, device: str, scheduled: bool = False) -> Made:
    model = net().to(device)
    optimizer = Sharp(inner(model.parameters()), radius=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def body(batch: Batch) -> torch.Tensor:
        F.mse_loss(model(batch["x"]), batch["t"]).backward()
        optimizer.climb()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        optimizer.descend()
        if scheduled:
            schedule.step()
        return loss

    return model, optimizer, body


def passing(inner: Any, device: str, scheduled: bool = False, kind: Any = Passing) -> Made:
    model = net().to(device)
    optimizer = kind(inner(model.parameters()))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch["x"]), batch["t"])
        loss.backward()
        optimizer.step()
        if scheduled:
            schedule.step()
        return loss

    return model, optimizer, body


slow = functools.partial(passing, kind=Slow)

INNER: dict[str, Any] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),  # pyright: ignore[reportUnknownLambdaType]
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-2),  # pyright: ignore[reportUnknownLambdaType]
}


def batches(device: str) -> list[Batch]:
    return [
        {name: tensor.double().to(device) for name, tensor in regression(seed=number).items()}
        for number in range(STEPS)
    ]


@pytest.mark.parametrize("make", [sharp, passing, slow])
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("scheduled", [False, True], ids=["", "scheduled"])
def test_it_trains_as_in_torch(make: Any, inner: str, scheduled: bool, device: str) -> None:
    given = batches(device)
    model, optimizer, body = make(INNER[inner], device, scheduled)
    twin, others, eager = make(INNER[inner], device, scheduled)
    step = compile_step(body, example=given[0], device=device)
    for number, batch in enumerate(given):
        if number == STEPS - 1:
            step.capture(batch)
        loss = step.replay() if number == STEPS - 1 else step.train_step(batch)
        torch.testing.assert_close(loss, eager(batch).detach(), rtol=1e-9, atol=1e-12)
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
            for kept, theirs in (
                (optimizer.state[p], others.state[q]),
                (optimizer.inner.state[p], others.inner.state[q]),
            ):
                assert kept.keys() == theirs.keys()
                for key, value in theirs.items():
                    placed = key != "step"  # which torch keeps on the host
                    torch.testing.assert_close(kept[key], value, rtol=1e-9, atol=1e-12, check_device=placed)
    assert optimizer.param_groups[0]["lr"] == others.param_groups[0]["lr"]


def test_a_radius_that_changes_is_refused_by_name() -> None:
    given = batches("cpu")
    model, optimizer, body = sharp(INNER["sgd"], "cpu")
    twin, others, eager = sharp(INNER["sgd"], "cpu")
    step = compile_step(body, example=given[0], device="cpu")
    for number, batch in enumerate(given[:2]):
        for each in (optimizer, others):
            each.param_groups[0]["radius"] = 0.1 * (1 + number)
        if number:
            with pytest.raises(GuardError, match=r"'radius'.*was 0.1, now 0.2"):
                step.train_step(batch)
            step.recompile()
        torch.testing.assert_close(step.train_step(batch), eager(batch).detach(), rtol=1e-9, atol=1e-12)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


class Warmed(Around):
    """Sets the rate of each step, in the param groups of its own or of the inner optimizer, which are the same."""

    def __init__(self, inner: torch.optim.Optimizer, entry: str, value: Any, by_inner: bool = False):
        super().__init__(inner)
        self.entry, self.value, self.by_inner = entry, value, by_inner

    def step(self) -> None:
        for group in (self.inner if self.by_inner else self).param_groups:
            group[self.entry] = self.value
        self.inner.step()


@pytest.mark.parametrize(
    ("entry", "value"), [("lr", 0.05), ("lr", 1e-2), ("betas", (0.9, 0.999)), ("amsgrad", True)]
)
def test_a_number_set_in_groups_of_its_own_is_refused(entry: str, value: Any) -> None:
    given = batches("cpu")
    model, optimizer, body = passing(
        INNER["adamw"], "cpu", kind=functools.partial(Warmed, entry=entry, value=value)
    )
    before = {**optimizer.param_groups[0]}
    with pytest.raises(
        TraceError, match=rf"sets '{entry}' in a param group of optimizer.inner, which .* write for"
    ):
        compile_step(body, example=given[0], device="cpu")
    assert optimizer.param_groups[0] == before
    assert all(p.grad is None for p in model.parameters())


def test_a_rate_set_in_the_groups_of_the_inner_one_is_that_of_each_step() -> None:
    weights: list[torch.Tensor] = []
    for compiles in (False, True):
        kind = functools.partial(Warmed, entry="lr", value=0.05, by_inner=True)
        model, _, body = passing(INNER["adamw"], "cpu", kind=kind)
        called = train_step(device="cpu")(body) if compiles else body
        for batch in batches("cpu"):
            called(batch)
        weights.append(next(model.parameters()).detach().clone())
    torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)
