"""Rates that a loop body sets itself, schedulers that follow a value, and numbers that are known after the step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from oracle import same_bits
from torch import nn

from aicf_mlir import GuardError, TraceError, compile_step


class Trained:
    """A model with two groups, and Python around it that changes from step to step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.opt = torch.optim.SGD(
            [{"params": [self.net.weight], "share": 0.5}, {"params": [self.net.bias]}],
            lr=0.1,
            momentum=0.9,
        )
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, patience=0, factor=0.5)
        self.number = 0
        self.factor = 1.0

    def trained(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(self.net(x), t)
        loss.backward()
        self.opt.step()
        return loss

    def decayed(self, x: torch.Tensor, t: torch.Tensor) -> Any:
        self.opt.zero_grad()
        loss = self.trained(x, t)
        for group in self.opt.param_groups:
            group["lr"] *= 0.9
        return loss.item() * self.factor, self.factor

    def judged(self, x: torch.Tensor, t: torch.Tensor) -> Any:
        self.opt.zero_grad()
        loss = self.trained(x, t)
        self.plateau.step(loss.item() + 0.0)
        return {"loss": float(loss.detach()), "right": int((loss > 0).sum())}

    def state(self) -> list[Any]:
        return [
            *(p.detach().clone() for p in self.net.parameters()),
            *(torch.tensor(group["lr"], dtype=torch.float64) for group in self.opt.param_groups),
            torch.tensor(self.plateau.best, dtype=torch.float64),
            torch.tensor(self.plateau.num_bad_epochs),
        ]


BODIES = (Trained.decayed, Trained.judged)
each_body = pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(6, 4, generator=draw), torch.randn(6, 2, generator=draw)


def assert_near(got: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        got, wanted = [*got.values()], [*wanted.values()]
    for one, other in zip(got, wanted, strict=True):
        assert type(one) is type(other)
        torch.testing.assert_close(
            torch.as_tensor(one), torch.as_tensor(other).detach(), rtol=1e-5, atol=1e-6
        )


@each_body
def test_each_step_is_torchs_while_python_goes_on(body: Any) -> None:
    ours, theirs = Trained(), Trained()
    step = compile_step(body.__get__(ours), example=[batch_of(0)], device="cpu")
    assert ours.opt.param_groups[0]["lr"] == 0.1  # nothing of a trace is left
    for number in range(5):
        for each in (ours, theirs):
            each.number, each.factor = number, 1.0 + number // 4
            if number == 2:
                each.opt.param_groups[1]["lr"] = 0.02
        assert_near(step(*batch_of(number)), body(theirs, *batch_of(number)))
        assert_near(ours.state(), theirs.state())
    if body is Trained.judged:
        assert step.check(batch_of(9)).equal


@pytest.mark.parametrize("body", BODIES[:1], ids=lambda body: body.__name__)
def test_replays_do_the_same_each_time(body: Any) -> None:
    runs: list[list[torch.Tensor]] = []
    for replayed in (False, True):
        world = Trained()
        step = compile_step(body.__get__(world), example=[batch_of(0)], device="cpu")
        step(*batch_of(0))
        world.number = 3
        if replayed:
            step.capture(batch_of(0))
            step.replay(3)
        else:
            for _ in range(3):
                step(*batch_of(0))
        runs.append(world.state())
    assert all(same_bits(a, b) for a, b in zip(*runs, strict=True))


def test_two_changes_that_matter_together_are_noticed() -> None:
    world, numbers = Trained(), {"a": 0, "b": 0}

    def body(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        world.opt.zero_grad()
        loss = F.mse_loss(world.net(x), t) * (2 if numbers["a"] == 0 and numbers["b"] == 5 else 1)
        loss.backward()
        world.opt.step()
        return loss

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    for a, b in ((0, 0), (1, 0), (1, 5)):
        numbers.update(a=a, b=b)
        step(*batch_of(0))
    numbers["a"] = 0
    with pytest.raises(GuardError, match=r"numbers\['a'\] was 1, now 0"):
        step(*batch_of(0))


def test_a_number_is_that_of_its_line_and_enters_tensors() -> None:
    pointer = torch.zeros((), dtype=torch.int64)
    ours, theirs = Trained(), Trained()

    def body(world: Trained, pointer: torch.Tensor, x: torch.Tensor, t: torch.Tensor) -> Any:
        world.opt.zero_grad()
        before = pointer.item()
        loss = world.trained(x, t)
        pointer.add_(len(x))
        inverse = 1.0 / (2 * loss.item())
        return before, pointer.item(), x * inverse, (x > before).sum(), torch.where(x > 0, x, inverse)

    own, other = pointer.clone(), pointer.clone()
    step = compile_step(lambda x, t: body(ours, own, x, t), example=[batch_of(0)], device="cpu")
    for number in range(3):
        assert_near(step(*batch_of(number)), body(theirs, other, *batch_of(number)))


def steps_after_it_has_set(world: Trained, loss: torch.Tensor) -> Any:
    world.opt.step()
    world.opt.param_groups[0]["lr"] = 0.5
    world.opt.step()


def reads_before_it_sets(world: Trained, loss: torch.Tensor) -> Any:
    world.opt.step()
    rate = world.opt.param_groups[0]["lr"]
    world.opt.param_groups[0]["lr"] = 0.5
    return rate


def converts_and_computes(world: Trained, loss: torch.Tensor) -> Any:
    world.opt.step()
    return 2 * float(loss)


def converts_and_keeps(world: Trained, loss: torch.Tensor) -> Any:
    world.opt.step()
    number = int(loss)
    return {"number": number}


def fills_with_a_number(world: Trained, loss: torch.Tensor) -> Any:
    world.opt.step()
    return torch.full((3,), loss.item())


REFUSED: dict[Any, str] = {
    steps_after_it_has_set: r"world\.opt\.step\(\) behind the step of its scheduler, or behind setting",
    reads_before_it_sets: r"behind a read of a rate that it changes.*read the rate last",
    converts_and_computes: r"reads the value of a tensor by float\(\).*write \.item\(\)",
    converts_and_keeps: r"reads the value of a tensor by int\(\).*write \.item\(\)",
    fills_with_a_number: r"gives full\(\) a number that it has read from a tensor",
}


@pytest.mark.parametrize("rest", REFUSED, ids=lambda rest: rest.__name__)
def test_what_cannot_follow_is_refused(rest: Any) -> None:
    world = Trained()

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        world.opt.zero_grad()
        loss = F.mse_loss(world.net(x), t)
        loss.backward()
        return rest(world, loss)

    with pytest.raises(TraceError, match=REFUSED[rest]):
        compile_step(body, example=[batch_of(0)], device="cpu")
