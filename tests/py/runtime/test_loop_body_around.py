"""What Python does around the step of a loop body is done at each step, with the numbers of that step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_bodies_around import (
    BODIES,
    Around,
    counts,
    logs,
    sums,
    takes_rates_by_name,
    warms_up,
    warms_up_by_its_own_counter,
)
from torch import nn

from aicf_mlir import GuardError, TraceError, compile_step, train_step

each_body = pytest.mark.parametrize("make", BODIES, ids=lambda make: make().__name__)


def batch_of(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(number)
    return torch.randn(5, 4, generator=draw), torch.randn(5, 2, generator=draw)


def assert_near(got: Any, wanted: Any) -> None:
    """The same containers, kinds and texts, and near numbers."""
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, (list, tuple)):
        assert type(got) is type(wanted)
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_near(one, other)
    elif isinstance(wanted, (float, torch.Tensor)):
        assert type(got) is type(wanted)
        torch.testing.assert_close(torch.as_tensor(got), torch.as_tensor(wanted), rtol=2e-5, atol=2e-6)
    else:
        assert got == wanted


def detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return type(value)(map(detached, value)) if type(value) in (tuple, list) else value


@each_body
def test_each_step_is_torchs(make: Any) -> None:
    ours, theirs, body, same_body = Around(), Around(), make(), make()
    step = compile_step(lambda x, t: body(ours, x, t), example=[batch_of(0)], device="cpu")
    assert_near(ours.state(), theirs.state())  # compiling leaves everything as it was
    for number in range(8):
        for each in (ours, theirs):
            each.iteration = number
        if number == 5:  # as at the end of an epoch
            for each in (ours, theirs):
                each.total, each.count, each.step, each.log = 0.0, 0, 0, []
        batch = batch_of(number)
        if number == 3:
            step.capture(batch)
        if number < 3:
            got = step(*batch)
        else:
            step.replay(inputs=batch)
            got = step.returned
        assert_near(detached(got), detached(same_body(theirs, *batch)))
        assert_near(ours.state(), theirs.state())


@pytest.mark.parametrize("body", [sums, logs, counts, warms_up_by_its_own_counter])
def test_replays_in_a_row_do_so_at_each_step(body: Any) -> None:
    ours, theirs = Around(), Around()
    step = compile_step(lambda x, t: body(ours, x, t), example=[batch_of(0)], device="cpu")
    step(*batch_of(0))
    step.capture(batch_of(0))
    step.replay(6)
    for _ in range(7):
        body(theirs, *batch_of(0))
    assert_near(ours.state(), theirs.state())


@pytest.mark.parametrize("body", [sums, logs, warms_up])
def test_a_check_and_a_snapshot_leave_the_places_as_they_were(body: Any) -> None:
    world = Around()
    step = compile_step(lambda x, t: body(world, x, t), example=[batch_of(0)], device="cpu")
    step(*batch_of(0))
    before = world.state()
    copied = {key: list(value) if type(value) is list else value for key, value in before.items()}
    copied["weights"] = [weight.clone() for weight in before["weights"]]
    assert step.check(batch_of(1)).equal
    assert_near(world.state(), copied)
    kept = step.snapshot()
    step(*batch_of(1))
    step.restore(kept)
    assert_near(world.state(), copied)


def test_a_number_is_printed_at_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    world = Around()

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        loss = world.trained(x, t)
        print("loss", loss.item(), f"{loss.item():.2f}", sep=" | ")
        print(loss)
        return loss.item()

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    assert capsys.readouterr().out == ""
    losses = [step(*batch_of(number)) for number in range(2)]
    lines = [[f"loss | {loss} | {loss:.2f}", str(torch.tensor(loss))] for loss in losses]
    assert capsys.readouterr().out.splitlines() == [line for each in lines for line in each]
    step.check(batch_of(0))


def test_a_branch_on_a_counter_that_makes_another_step_is_refused_then() -> None:
    world = Around()

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        world.step += 1
        return world.trained(x * 2 if world.step > 2 else x, t)

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    step(*batch_of(0))
    step(*batch_of(0))
    weights = world.state()["weights"]
    before = [weight.clone() for weight in weights]
    with pytest.raises(GuardError, match=r"world\.step was 1, now 2"):
        step(*batch_of(0))
    assert world.step == 2
    assert all(torch.equal(a, b) for a, b in zip(before, weights, strict=True))


def test_a_rate_that_a_text_with_a_counter_decides_is_refused() -> None:
    world = Around()
    with pytest.raises(TraceError, match=r"compares a text with a number in it .* decide by it outside"):
        compile_step(lambda x, t: takes_rates_by_name(world, x, t), example=[batch_of(0)], device="cpu")
    assert world.step == 0


def test_a_number_in_a_tensor_beside_a_rate_is_guarded() -> None:
    world = Around()

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        world.rate(0.1 / (1 + world.iteration))
        return world.trained(x, t * (1 + world.count))

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    for world.iteration in range(3):
        step(*batch_of(0))
    world.count = 1
    with pytest.raises(GuardError, match=r"world\.count was 0, now 1"):
        step(*batch_of(0))


def test_what_functions_of_numbers_read_is_guarded() -> None:
    world, factors = Around(), [1, 2]

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        return world.trained(x, t * max(factors) * math.prod(factors))

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    step(*batch_of(0))
    factors[0] = 3
    with pytest.raises(GuardError, match="factors"):
        step(*batch_of(0))


def test_a_number_that_follows_another_entry_of_a_group_is_guarded() -> None:
    world = Around()

    def body(x: torch.Tensor, t: torch.Tensor) -> Any:
        world.rate(0.1)
        return world.trained(x, t)

    step = compile_step(body, example=[batch_of(0)], device="cpu")
    step(*batch_of(0))
    world.opt.param_groups[0]["share"] = 0.5
    step(*batch_of(0))
    assert [group["lr"] for group in world.opt.param_groups] == [0.05, 0.05]


def test_numbers_of_a_module_are_followed_with_those_beside_them() -> None:
    class Owner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total, self.count, self.mean = 0.0, 0, 0.0

    worlds = [(Around(), Owner()) for _ in range(2)]

    def body(world: Around, owner: Any, x: torch.Tensor, t: torch.Tensor) -> Any:
        world.opt.zero_grad()
        loss = F.mse_loss(world.net(x), t)
        loss.backward()
        world.opt.step()
        owner.total += loss.item() * len(x)
        owner.count += len(x)
        owner.mean = owner.total / owner.count

    step = compile_step(lambda x, t: body(*worlds[0], x, t), example=[batch_of(0)], device="cpu")
    for number in range(3):
        step(*batch_of(number))
        body(*worlds[1], *batch_of(number))
        for name in ("total", "count", "mean"):
            assert getattr(worlds[0][1], name) == pytest.approx(getattr(worlds[1][1], name), rel=1e-5)


class Sums:
    """Sums and counts in tensors that an object and a dictionary hold."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(4, 2)
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.total, self.seen = torch.zeros(()), {"rows": torch.zeros((), dtype=torch.long)}

    def body(self, batch: Any) -> Any:
        self.sgd.zero_grad()
        loss = self.net(batch["x"]).square().mean()
        loss.backward()
        self.sgd.step()
        self.total += loss.detach()
        self.seen["rows"] += len(batch["x"])
        return self.total, self.total / self.seen["rows"]


def test_sums_in_tensors_are_kept_by_augmented_assignment() -> None:
    ours, theirs = Sums(), Sums()
    held, step = ours.total, train_step(device="cpu")(ours.body)
    for number in range(4):
        batch = {"x": torch.randn(3, 4, generator=torch.Generator().manual_seed(number))}
        torch.testing.assert_close(step(batch), theirs.body(batch))
        assert ours.total is held
        torch.testing.assert_close((ours.total, ours.seen), (theirs.total, theirs.seen))
