"""Optimizers whose own step is traced: right beside torch, or refused with the reason."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable

import pytest
import torch
from models import mlp, mse, regression
from oracle import same_bits
from written_optimizers import REFUSED, RIGHT, Config
from written_pair import Pair, batches
from xdsl.dialects.builtin import f32

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.optimizers.traced import TracedRule

STEPS = 50

every = pytest.mark.parametrize("config", [RIGHT[name] for name in sorted(RIGHT)], ids=sorted(RIGHT))


@every
def test_fifty_steps_equal_torch(config: Config, device: str) -> None:
    pair = Pair(config, device, double=True)
    given = batches(device, STEPS, double=True)
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(each, [0.02, 0.01], total_steps=STEPS + 1, cycle_momentum=False)
        for each in pair.optimizers
    ]
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for number, batch in enumerate(given):
        if number == STEPS // 2:
            step.capture(batch)
        (step.train_step if number < STEPS // 2 else lambda batch: step.replay(inputs=batch))(batch)
        pair.in_torch(batch)
        for schedule in schedules:
            schedule.step()
    pair.assert_equal(1e-9)


@every
def test_replay_equals_eager_bit_for_bit(config: Config, device: str) -> None:
    (batch,) = batches(device, 1)
    results: list[list[torch.Tensor]] = []
    for replayed in (False, True):
        pair = Pair(config, device)
        step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
        step.train_step(batch)
        if replayed:
            step.capture(batch)
            step.replay(6)
        else:
            for _ in range(6):
                step.train_step(batch)
        states = [t for p in pair.model.parameters() for t in pair.ours.state[p].values()]
        results.append([p.detach().clone() for p in (*pair.model.parameters(), *states)])
    for eager, replay in zip(*results, strict=True):
        assert same_bits(eager, replay)


@every
def test_state_goes_both_ways(config: Config, device: str) -> None:
    pair = Pair(config, device, double=True)
    given = batches(device, 9, double=True)
    for batch in given[:3]:
        pair.in_torch(batch)
    pair.model.load_state_dict(pair.other.state_dict())
    pair.ours.load_state_dict(copy.deepcopy(pair.theirs.state_dict()))
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for batch in given[3:6]:
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)
    pair.theirs.load_state_dict(copy.deepcopy(pair.ours.state_dict()))
    for batch in given[6:]:
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-10)


@every
def test_certificate(config: Config, device: str) -> None:
    (batch,) = batches(device, 1)
    pair = Pair(config, device)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device)
    step.train_step(batch)
    certificate = step.capture(batch, verify="bitwise")
    assert certificate.equal, certificate
    assert {row.kind for row in step.scalars()} <= {
        "host_scalar",
        "guarded",
        "literal",
        "computed",
        "default",
    }
    assert "lr" in step.meta


@pytest.mark.parametrize(("config", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_reason(config: Config, reason: str) -> None:
    torch.manual_seed(0)
    model = mlp(8, 17, 8)
    optimizer = config(model.parameters())
    before, held = copy.deepcopy(model.state_dict()), dict(vars(optimizer))
    with pytest.raises(TraceError, match=reason):
        compile_train_step(model, optimizer, loss_fn=mse, example=regression(), device="cpu")
    assert not optimizer.state
    assert vars(optimizer) == held
    for name, value in model.state_dict().items():
        assert same_bits(value, before[name])


def test_refusal_names_the_line() -> None:
    config, _ = REFUSED["counts-by-data"]
    model = mlp(8, 17, 8)
    with pytest.raises(TraceError, match=r"written_optimizers.py:\d+: .*int\(grad.norm\(\)\)"):
        compile_train_step(model, config(model.parameters()), loss_fn=mse, example=regression(), device="cpu")


def test_a_traced_rule_has_no_op_for_one_parameter() -> None:
    with pytest.raises(NotImplementedError, match="@step_update updates all parameters at once"):
        TracedRule("Lion", "step_update").advance({}, f32)


CHOICES: dict[str, Callable[[float, float], float]] = {
    "constant first": lambda norm, lr: max(1.0, norm),
    "constant last": lambda norm, lr: max(norm, 1.0),
    "least, constant first": lambda norm, lr: min(1.0, norm),
    "least, constant last": lambda norm, lr: min(norm, 1.0),
    "three": lambda norm, lr: max(0.01, norm, 0.5),
    "number of the group first": lambda norm, lr: min(lr, norm),
    "number of the group last": lambda norm, lr: max(norm, lr),
}


@pytest.mark.parametrize("choice", list(CHOICES.values()), ids=list(CHOICES))
@pytest.mark.parametrize("factor", [1.0, math.nan, math.inf])
def test_the_larger_number_is_pythons(choice: Callable[[float, float], float], factor: float) -> None:
    """Beside a NaN, Python's `max` and `min` keep the first number."""

    class Chosen(torch.optim.Optimizer):
        def __init__(self, params: Iterable[torch.Tensor]):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            for group in self.param_groups:
                for p in group["params"]:
                    norm = (p.grad.norm() * factor).item()
                    p.sub_(p.grad, alpha=choice(norm, group["lr"]))

    model = mlp(8, 6, 2).double()
    other = copy.deepcopy(model)
    ours, theirs = Chosen(model.parameters()), Chosen(other.parameters())
    batch = regression(outputs=2, dtype=torch.float64)
    step = compile_train_step(model, ours, loss_fn=mse, example=batch)
    for _ in range(2):
        step.train_step(batch)
        theirs.zero_grad()
        mse(other, batch).backward()
        theirs.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12, equal_nan=True)
