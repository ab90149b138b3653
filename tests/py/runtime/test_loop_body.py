"""Bodies of training loops, compiled whole: right beside torch, bit for bit in a replay, whole or not at all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled_bodies import Make, assert_near, batches, compiled, flat, in_torch, made
from loop_bodies import BODIES
from oracle import same_bits

from aicf_mlir import train_step

STEPS = 50

every = pytest.mark.parametrize("make", BODIES.values(), ids=BODIES.keys())


@every
def test_fifty_calls_equal_torch(make: Make, device: str) -> None:
    ours, theirs = (made(make, device, torch.float64) for _ in range(2))
    given = batches(ours, device, STEPS, torch.float64)
    step = compiled(ours, device, given[0])
    for number, batch in enumerate(given):
        if number == STEPS // 2:
            step.capture(batch)
        if number < STEPS // 2:
            returned = step(batch)
        else:
            step.replay(inputs=batch)
            returned = step.returned
        wanted = in_torch(theirs, batch)
        assert type(returned) is type(wanted) or isinstance(returned, type(wanted))
        for got, expected in zip(flat(returned), flat(wanted), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    assert_near(ours, theirs, 1e-9)
    for mine, their in zip(ours.schedulers, theirs.schedulers, strict=True):
        assert mine.last_epoch == their.last_epoch
        assert mine.get_last_lr() == their.get_last_lr()


@every
def test_replay_equals_eager_bit_for_bit(make: Make, device: str) -> None:
    results: list[list[torch.Tensor]] = []
    for replayed in (False, True):
        world = made(make, device)
        (batch,) = batches(world, device, 1)
        step = compiled(world, device, batch)
        step(batch)
        if replayed:
            step.capture(batch)
            step.replay(5)
        else:
            for _ in range(5):
                step(batch)
        results.append([t.detach().clone() for t in (*world.tensors(), *flat(step.returned))])
    for eager, replay in zip(*results, strict=True):
        assert same_bits(eager, replay)


@every
def test_the_certificate_holds(make: Make) -> None:
    world = made(make, "cpu")
    (batch,) = batches(world, "cpu", 1)
    step = compiled(world, "cpu", batch)
    step(batch)
    assert step.capture(batch, verify="bitwise").equal


@every
def test_a_restored_step_goes_on_as_before(make: Make, device: str, tmp_path: Path) -> None:
    world = made(make, device)
    first, *rest = batches(world, device, 5)
    step = compiled(world, device, first)
    step(first)
    snapshot = step.snapshot()
    step.save(tmp_path / "checkpoint")
    rates = [copy.deepcopy(scheduler.state_dict()) for scheduler in world.schedulers]
    ways = (lambda: None, lambda: step.restore(snapshot), lambda: step.load(tmp_path / "checkpoint"))
    runs: list[list[torch.Tensor]] = []
    for go_back in ways:
        go_back()
        assert [scheduler.state_dict() for scheduler in world.schedulers] == rates
        for batch in rest:
            step(batch)
        runs.append([t.detach().clone() for t in world.tensors()])
    for straight, *others in zip(*runs, strict=True):
        assert all(same_bits(straight, other) for other in others)


def test_the_decorator_compiles_at_the_first_call(device: str) -> None:
    ours, theirs = (made(BODIES["usual"], device) for _ in range(2))
    step = train_step(ours.body)
    decorated = train_step(device=device, further_sizes=1)(made(BODIES["micro_batches"], device).body)
    for batch in batches(ours, device, 3):
        torch.testing.assert_close(step(batch), in_torch(theirs, batch).detach())
    assert step.step.state == "warmed"
    for size in (6, 3, 6):
        loss = decorated(torch.ones(size, 4, device=device), torch.ones(size, 2, device=device))
        assert loss.shape == ()
    assert vars(decorated)["__name__"] == "body"


ARGUMENTS: dict[str, Any] = {
    "one tensor": lambda step, x, t: (lambda x: step(x, x[:, :2]), (x,)),
    "one of two": lambda step, x, t: (lambda x, t=None: step(x, x[:, :2] if t is None else t), (x, t)),
    "any number": lambda step, x, t: (lambda *batch: step(*batch), (x, t)),
    "a tuple": lambda step, x, t: (lambda batch: step(*batch), ((x, t),)),
}
"""How a body takes its batch, and how it is called."""


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_arrive_as_in_a_plain_call(name: str, device: str) -> None:
    weights: list[torch.Tensor] = []
    for compiles in (False, True):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 2).to(device)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)

        def step(x: torch.Tensor, t: torch.Tensor, net: Any = net, sgd: Any = sgd) -> None:
            sgd.zero_grad()
            (net(x) - t).square().mean().backward()
            sgd.step()

        body, arguments = ARGUMENTS[name](
            step, torch.randn(3, 4, device=device), torch.ones(3, 2, device=device)
        )
        called = train_step(device=device)(body) if compiles else body
        for _ in range(2):
            called(*arguments)
        weights.append(net.weight.detach().clone())
    torch.testing.assert_close(*weights)
