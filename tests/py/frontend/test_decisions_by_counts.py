"""Decisions of an optimizer by numbers that change from step to step: both sides are traced, and torch's is taken."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from models import mlp, mse, regression
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import GuardError, TraceError


class RectifiedAdam(Written):
    """arXiv:1908.03265, a count for each group: SGD with momentum until the variance is known."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            t = group["step"] = group.get("step", 0) + 1
            beta1, beta2 = group["betas"]
            most = 2 / (1 - beta2) - 1
            length = most - 2 * t * beta2**t / (1 - beta2**t)
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                state["mean"].lerp_(p.grad, 1 - beta1)
                state["square"].lerp_(p.grad.square(), 1 - beta2)
                update = state["mean"] / (1 - beta1**t)
                if length > 5:
                    ratio = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
                    root = (state["square"] / (1 - beta2**t)).sqrt().add_(1e-8)
                    update = update * math.sqrt(ratio) / root
                p.sub_(group["lr"] * update)


def test_rectified_adam(device: str) -> None:
    """Beyond the decision by replay, back by the user's hand, and in a group with another decision at the time."""
    pair = Pair(
        lambda groups: RectifiedAdam(groups, lr=0.01, betas=(0.9, 0.9)), device, double=True, one_layer=True
    )
    pair.set("betas", (0.9, 0.99), group=1)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    step.train_step(batch)
    pair.in_torch(batch)
    step.capture(batch)
    for count, change in [(2, None), (6, ("step", 2)), (4, ("betas", (0.8, 0.85))), (3, None)]:
        step.replay(count)
        for _ in range(count):
            pair.in_torch(batch)
        pair.assert_equal(1e-10)
        if change:
            pair.set(*change)


class Calibrated(Written):
    """arXiv:1908.00700: the root of the second moment through a softplus, whose sharpness is a hyperparameter."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if not state:
                state["square"] = torch.zeros_like(p)
            state["square"].lerp_(grad * grad, 0.1)
            root = torch.nn.functional.softplus(state["square"].sqrt(), beta=group["smooth"])
            p.addcdiv_(grad, root, value=-group["lr"])


def test_a_parameter_of_an_op_that_changes(device: str) -> None:
    pair = Pair(lambda groups: Calibrated(groups, lr=0.01, smooth=50.0), device, double=True, one_layer=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    for smooth in (50.0, 20.0, 30.0):
        pair.set("smooth", smooth)
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)


class Lookahead(Written):
    """arXiv:1907.08610: slow weights that follow each third step."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if not state:
                state["step"], state["slow"] = 0, p.clone()
            state["step"] += 1
            p.sub_(grad, alpha=group["lr"])
            if state["step"] % group["every"] == 0:
                state["slow"].lerp_(p, 0.5)
                p.copy_(state["slow"])


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_each_so_many_steps(every: int, device: str) -> None:
    """And of another number of them from some step on."""
    pair = Pair(lambda groups: Lookahead(groups, lr=0.1, every=every), device, double=True, one_layer=True)
    (batch,) = batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    step.train_step(batch)
    pair.in_torch(batch)
    assert step.capture(batch, verify="bitwise").equal
    for count in (4, 7):
        step.replay(count)
        for _ in range(count):
            pair.in_torch(batch)
        pair.assert_equal(1e-10)
        pair.set("every", every + 1)


def test_a_remainder_by_0_is_an_error() -> None:
    """As in Python; before a step, and when it is compiled."""
    pair = Pair(lambda groups: Lookahead(groups, lr=0.1, every=2), "cpu", double=True, one_layer=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    pair.in_torch(batch)
    pair.set("every", 0)
    with pytest.raises(GuardError, match=r"Lookahead\.step reads .* call recompile"):
        step.train_step(batch)
    with pytest.raises(TraceError, match="modulo by zero"):
        step.recompile()
    pair.set("every", 2)
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)


class Rectified(Written):
    """Trains after two steps; the bias corrections are of the past."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            state["step"] = state.get("step", 0) + 1
            if state["step"] > 2 and state["step"] != 4:
                grad.mul_(2.0)
                p.add_(grad, alpha=-group["lr"] / state["step"])


def test_counts_of_parameters() -> None:
    model = torch.nn.Linear(8, 8, bias=False).double()
    other = copy.deepcopy(model)
    ours, theirs = (Rectified(each.parameters(), lr=0.1) for each in (model, other))
    batch: Any = regression(dtype=torch.float64)
    step = compile_train_step(model, ours, loss_fn=mse, example=batch)
    for _ in range(5):
        step.train_step(batch)
        theirs.zero_grad()
        mse(other, batch).backward()
        theirs.step()
        torch.testing.assert_close(model.weight, other.weight, rtol=1e-12, atol=1e-14)
    assert ours.state_dict()["state"] == theirs.state_dict()["state"] == {0: {"step": 5}}


class Clipped(Written):
    """Decides by a number of the batch, and writes to the gradient on one side."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            norm = grad.norm().item()
            if norm > group["most"]:
                grad.mul_(group["most"] / norm)
            p.sub_(grad, alpha=group["lr"])


def test_a_number_of_the_batch() -> None:
    pair = Pair(lambda groups: Clipped(groups, lr=0.5, most=0.2), "cpu", double=True, one_layer=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batches("cpu", 1, double=True)[0])
    sides: set[bool] = set()
    for scale in (1.0, 0.01, 1.0, 0.3):
        (batch,) = batches("cpu", 1, double=True)
        batch = {name: tensor * scale for name, tensor in batch.items()}
        step.train_step(batch)
        pair.theirs.zero_grad()
        mse(pair.other, batch).backward()
        weight: Any = pair.other[0].weight
        sides.add(bool(weight.grad.norm() > 0.2))
        pair.theirs.step()
        pair.assert_equal(1e-10)
    assert sides == {True, False}


class LateState(Written):
    """Keeps another state from the third step on."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                if group["step"] > 2:
                    self.state[p]["late"] = p.grad * 2.0
                p.sub_(p.grad, alpha=group["lr"])


class AsInteger(Written):
    """Needs the count itself."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"] * [1.0, 2.0][int(group["step"]) % 2])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (LateState, "which states it keeps"),
        (AsInteger, "looks at a number that changes from step to step"),
        (
            Rectified,
            r'by_counts.py:\d+: Rectified.step looks .*state\["step"\] > 2.*, after 4 other such decisions',
        ),
    ],
)
def test_refused(kind: type[Written], reason: str) -> None:
    model = mlp(8, 17, 8)
    with pytest.raises(TraceError, match=reason):
        compile_train_step(model, kind(model.parameters(), lr=0.1), loss_fn=mse, example=regression())
