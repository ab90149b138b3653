"""Optimizers whose first step is another one, or begins a state with a gradient: compiled after they have taken it."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from models import mse
from oracle import same_bits
from written_optimizers import BeginsWithRate, Config, FirstIsDifferent, Written
from written_pair import Pair, batches

from aicf_mlir import BindError, compile_train_step
from aicf_mlir.errors import TraceError


class Yogi(Written):
    """Zaheer et al., NeurIPS 2018; its second moment begins as the first square."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if not state:
                state["step"], state["mean"], state["square"] = 0, torch.zeros_like(p), grad * grad
            state["step"] += 1
            beta1, beta2 = group["betas"]
            square = grad * grad
            state["mean"].mul_(beta1).add_(grad, alpha=1 - beta1)
            sign = (square - state["square"]).sign()
            state["square"].addcmul_(square, sign, value=1 - beta2)
            root = (state["square"] / (1 - beta2 ** state["step"])).sqrt().add_(1e-3)
            p.addcdiv_(state["mean"], root, value=-group["lr"] / (1 - beta1 ** state["step"]))


class Differences(Written):
    """Adan's way: the gradient of the step before, which in the first step is the gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
            for p in group["params"]:
                state = self.state[p]
                if p.grad is None:
                    continue
                if "before" not in state:
                    state["change"], state["before"] = torch.zeros_like(p), p.grad.clone()
                state["change"].lerp_(p.grad - state["before"], 0.1)
                p.sub_(group["lr"] * (p.grad + 0.9 * state["change"] / (1 - 0.9 ** group["count"])))
                state["before"].copy_(p.grad)


BEGUN: dict[str, Config] = {
    "yogi": lambda ps: Yogi(ps, lr=0.01, betas=(0.9, 0.99)),
    "differences": lambda ps: Differences(ps, lr=0.1),
    "first is different": lambda ps: FirstIsDifferent(ps, lr=0.1),
    "begins with the rate": lambda ps: BeginsWithRate(ps, lr=0.1),
}
every = pytest.mark.parametrize("config", BEGUN.values(), ids=BEGUN.keys())


def begun(config: Config, device: str, steps: int = 1) -> Pair:
    """Both have taken so many steps of torch."""
    pair = Pair(config, device, double=True)
    for batch in batches(device, steps, double=True):
        pair.in_torch(batch)
        pair.ours.zero_grad()
        mse(pair.model, batch).backward()
        pair.ours.step()
    return pair


@every
@pytest.mark.parametrize("steps", [1, 3])
def test_later_steps_equal_torch(config: Config, steps: int, device: str) -> None:
    pair, given = begun(config, device, steps), batches(device, 9, double=True)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in pair.optimizers]
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for number, batch in enumerate(given):
        if number == 4:
            assert step.capture(batch, verify="bitwise").equal
        if number == 7:
            step.recompile()
        (step.train_step if number < 4 or number > 6 else lambda b: step.replay(inputs=b))(batch)
        pair.in_torch(batch)
        for schedule in schedules:
            schedule.step()
    pair.assert_equal(1e-9)


@every
def test_the_first_step_is_not_compiled(config: Config) -> None:
    pair = Pair(config, "cpu")
    (batch,) = batches("cpu", 1)
    with pytest.raises(TraceError, match=r"or take a step of .* before it is compiled"):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    mse(pair.model, batch).backward()
    first, *others = pair.model.parameters()
    for other in others:
        other.grad = None
    pair.ours.step()
    assert pair.ours.state[first]
    pair.ours.zero_grad()
    with pytest.raises(TraceError, match="before it is compiled"):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")


@every
def test_a_state_that_is_taken_away_is_missed(config: Config, device: str, tmp_path: Path) -> None:
    pair, (batch,) = begun(config, device), batches(device, 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    step.train_step(batch)
    pair.in_torch(batch)
    step.save(tmp_path / "begun")
    held, before = pair.ours.state_dict(), [p.detach().clone() for p in pair.model.parameters()]
    held = copy.deepcopy(held)
    pair.ours.state.clear()
    with pytest.raises(BindError, match="only the optimizer can begin it"):
        step.train_step(batch)
    assert all(map(same_bits, before, [p.detach() for p in pair.model.parameters()]))
    pair.ours.load_state_dict(held)
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)
    step.load(tmp_path / "begun")
    assert all(map(same_bits, before, [p.detach() for p in pair.model.parameters()]))


class MadeWithItself(Written):
    """Makes its states in the object's making, and counts in them and in its groups."""

    def __init__(self, params: Any, **defaults: Any):
        super().__init__(params, **defaults)
        for group in self.param_groups:
            group["count"] = 0
            for p in group["params"]:
                self.state[p].update(mean=torch.zeros_like(p), square=torch.full_like(p, 0.1), step=0)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["count"] += 1
        for p, grad, state, group in self.entries():
            state["step"] += 1
            state["mean"].lerp_(grad, 0.1)
            state["square"].mul_(0.9).addcmul_(grad, grad, value=0.1)
            rate = group["lr"] / (1 - 0.9 ** state["step"]) / group["count"]
            p.sub_(rate * state["mean"] / state["square"].sqrt())


def test_states_made_with_the_optimizer(device: str) -> None:
    pair, given = Pair(lambda ps: MadeWithItself(ps, lr=0.01), device, double=True), batches(device, 9, True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for number, batch in enumerate(given):
        if number == 4:
            assert step.capture(batch, verify="bitwise").equal
        if number == 7:
            step.recompile()
        (step.train_step if number < 4 or number > 6 else lambda b: step.replay(inputs=b))(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-9)
    for ours, theirs in zip(*(each.state_dict()["state"].values() for each in pair.optimizers), strict=True):
        assert [type(value) for value in ours.values()] == [type(value) for value in theirs.values()]
    pair.ours.state.clear()
    with pytest.raises(BindError, match="only the optimizer can begin it"):
        step.train_step(given[0])
