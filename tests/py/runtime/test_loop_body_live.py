"""A compiled loop body while the objects around it change, and when something comes in the middle."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from oracle import same_bits
from torch import nn

from aicf_mlir import BindError, GuardError, OutOfRangeError, StateError, TraceError, compile_step, train_step
from aicf_mlir.errors import AicfError
from aicf_mlir.optim import Adam


class Pair:
    """A classifier and a critic of it, updated one behind the other; the second loss checks class indices."""

    def __init__(self, device: str):
        torch.manual_seed(0)
        with torch.device(device):
            self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 3)
        self.one = torch.optim.Adam(self.first.parameters(), lr=0.05)
        self.two = torch.optim.SGD(self.second.parameters(), lr=0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(self.one, [2, 3], gamma=0.5)
        self.weight = 1.0
        self.calls = 0

    def body(self, batch: Any) -> Any:
        self.one.zero_grad()
        self.two.zero_grad()
        y = self.first(batch["x"])
        start = self.weight * y.square().mean()
        start.backward()
        self.one.step()
        loss = F.cross_entropy(self.second(self.first(batch["x"])), batch["t"])
        self.two.zero_grad()
        loss.backward()
        self.two.step()
        self.schedule.step()
        return {"start": start, "loss": loss}

    def tensors(self) -> list[torch.Tensor]:
        own = [*self.first.parameters(), *self.second.parameters()]
        states = [v for o in (self.one, self.two) for s in o.state.values() for v in s.values()]
        return [t.detach().clone() for t in (*own, *map(torch.as_tensor, states))]


def batch_of(device: str, wrong: bool = False, size: int = 5, seed: int = 0) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x, t = torch.randn(size, 4, generator=draw), torch.randint(3, (size,), generator=draw)
    if wrong:
        t[1] = 7
    return {"x": x.to(device), "t": t.to(device)}


def unchanged(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return len(before) == len(after) and all(same_bits(a, b) for a, b in zip(before, after, strict=True))


def test_a_check_behind_the_first_update_skips_the_whole_call(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device)
    step(batch_of(device))
    before, epoch = pair.tensors(), pair.schedule.last_epoch
    with pytest.raises(OutOfRangeError, match="skipped whole"):
        step(batch_of(device, wrong=True))
        step.synchronize()
    assert unchanged(before, pair.tensors())
    assert pair.schedule.last_epoch == epoch
    step(batch_of(device))
    assert pair.schedule.last_epoch == epoch + 1
    step.capture(batch_of(device))
    before = pair.tensors()
    with pytest.raises(OutOfRangeError, match="skipped whole"):
        step.replay(3, inputs=batch_of(device, wrong=True))
        step.synchronize()
    assert unchanged(before, pair.tensors())
    assert pair.schedule.last_epoch == epoch + 1


def test_rates_are_alive_and_other_values_are_watched(device: str) -> None:
    ours, theirs = Pair(device), Pair(device)
    step = compile_step(ours.body, example=batch_of(device), device=device)
    for number in range(6):
        if number == 3:
            for pair in (ours, theirs):
                pair.two.param_groups[0]["lr"] = 0.01
        got, wanted = step(batch_of(device, seed=number)), theirs.body(batch_of(device, seed=number))
        torch.testing.assert_close(got["loss"], wanted["loss"].detach())
    ours.calls = 5  # nothing reads it
    step(batch_of(device))
    before = ours.tensors()
    ours.weight = 2.0
    with pytest.raises(GuardError, match=r"weight was 1\.0, now 2\.0"):
        step(batch_of(device))
    assert unchanged(before, ours.tensors())
    step.recompile()
    step(batch_of(device))


def test_another_optimizer_in_its_place_is_noticed(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device)
    step(batch_of(device))
    pair.two = torch.optim.SGD(pair.second.parameters(), lr=0.5)
    with pytest.raises(GuardError, match="two"):
        step(batch_of(device))
    step.recompile()
    before = pair.second.weight.detach().clone()
    step(batch_of(device))
    assert pair.two.param_groups[0]["lr"] == 0.5
    assert "momentum_buffer" not in pair.two.state[pair.second.weight]
    assert not same_bits(before, pair.second.weight.detach())


def test_each_optimizer_has_bias_corrections_of_its_own(device: str) -> None:
    with torch.device(device):
        first, second = nn.Linear(4, 3), nn.Linear(4, 3)
    one, two = Adam(first, betas=(0.5, 0.9)), Adam(second, betas=(0.8, 0.9))

    def body(batch: Any) -> None:
        for net, each in ((first, one), (second, two)):
            each.zero_grad()
            F.cross_entropy(net(batch["x"]), batch["t"]).backward()
            each.step()

    step = compile_step(body, example=batch_of(device), device=device)
    step(batch_of(device))
    assert (one.bc1_inv, two.bc1_inv) == (pytest.approx(2.0), pytest.approx(5.0))
    two.bc1_inv = 7.0
    step(batch_of(device))
    assert (one.bc1_inv, two.bc1_inv) == (pytest.approx(1 / (1 - 0.5**2)), 7.0)


def test_a_number_may_be_a_meta_slot() -> None:
    pair = Pair("cpu")
    step = compile_step(pair.body, example=batch_of("cpu"), device="cpu", meta=["self.weight"])
    start = step(batch_of("cpu"))["start"]
    other = Pair("cpu")
    other.weight = pair.weight = 2.0
    step(batch_of("cpu"))
    torch.testing.assert_close(start * 2, other.body(batch_of("cpu"))["start"].detach())


def test_a_group_or_a_hook_that_is_added_is_noticed(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device)
    handle = pair.two.register_step_pre_hook(lambda *_: None)
    with pytest.raises(AicfError, match="step_pre_hooks"):
        step(batch_of(device))
    handle.remove()
    step(batch_of(device))
    pair.two.add_param_group({"params": [nn.Parameter(torch.zeros(1, device=device))]})
    with pytest.raises(AicfError, match="param groups"):
        step(batch_of(device))


def test_a_gradient_from_outside_is_noticed_where_each_call_leaves_none() -> None:
    net = nn.Linear(4, 3)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)

    def body(batch: Any) -> None:
        F.cross_entropy(net(batch["x"]), batch["t"]).backward()
        sgd.step()
        sgd.zero_grad()

    step = compile_step(body, example=batch_of("cpu"), device="cpu")
    step(batch_of("cpu"))
    net(torch.ones(1, 4)).sum().backward()
    with pytest.raises(GuardError, match=r"grad"):
        step(batch_of("cpu"))
    sgd.zero_grad()
    step(batch_of("cpu"))


def test_replays_step_the_schedulers_each_time(device: str) -> None:
    results: list[Any] = []
    for replayed in (False, True):
        pair = Pair(device)
        step = compile_step(pair.body, example=batch_of(device), device=device)
        step(batch_of(device))
        if replayed:
            step.capture(batch_of(device))
            step.replay(5, sync=True)
        else:
            for _ in range(5):
                step(batch_of(device))
        assert pair.one.param_groups[0]["lr"] == 0.05 * 0.25
        assert pair.schedule.last_epoch == 6
        results.append(pair.tensors())
    assert unchanged(*results)


def test_a_warm_up_puts_everything_back(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device)
    with pytest.raises(StateError, match="no step has been taken"):
        _ = step.returned
    before = pair.tensors()
    step.warmup(batch_of(device), 3)
    assert unchanged(before, pair.tensors())
    assert pair.schedule.last_epoch == 0
    assert not pair.one.state


def test_another_batch_size_and_another_thread(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device, further_sizes=1)
    step(batch_of(device))
    step(batch_of(device, size=3))
    with pytest.raises(BindError):
        step({"x": torch.zeros(5, 4, device=device)})
    found: list[Any] = []

    def other() -> None:
        found.append(step(batch_of(device)))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(60)
    assert found and found[0].keys() == {"start", "loss"}


def test_what_it_returns_is_its_own(device: str) -> None:
    pair = Pair(device)
    step = compile_step(pair.body, example=batch_of(device), device=device, metrics={"start": "mean"})
    first = step(batch_of(device))
    kept = first["start"].clone()
    step(batch_of(device, seed=1))
    assert same_bits(first["start"], kept)
    assert not first["loss"].requires_grad
    assert step.metrics()["start"].item() == pytest.approx(
        (kept + step.returned["start"]).item() / 2, rel=1e-6
    )
    assert all(p.grad is None for p in pair.first.parameters())


def test_dropout_draws_anew_and_in_both_updates() -> None:
    net = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 3))
    sgd = torch.optim.SGD(net.parameters(), lr=0.0)

    @train_step(device="cpu", seed=3)
    def body(batch: Any) -> Any:
        losses: list[torch.Tensor] = []
        for _ in range(2):
            sgd.zero_grad()
            loss = F.cross_entropy(net(batch["x"]), batch["t"])
            loss.backward()
            sgd.step()
            losses.append(loss)
        return losses

    drawn = [loss.item() for _ in range(3) for loss in body(batch_of("cpu"))]
    assert len(set(drawn)) == 6
    body.step.seed(3)
    assert [loss.item() for _ in range(3) for loss in body(batch_of("cpu"))] == drawn
    body.step.seed(3)
    body.step.capture(batch_of("cpu"))
    replayed: list[float] = []
    for _ in range(3):
        body.step.replay()
        replayed += [loss.item() for loss in body.step.returned]
    assert replayed == drawn


def test_compiled_again_it_asks_anew_what_a_call_leaves() -> None:
    net = nn.Linear(4, 3)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    ends = {"zeroed": True}

    def body(batch: Any) -> None:
        F.cross_entropy(net(batch["x"]), batch["t"]).backward()
        sgd.step()
        if ends["zeroed"]:
            sgd.zero_grad()

    step = compile_step(body, example=batch_of("cpu"), device="cpu")
    step(batch_of("cpu"))
    ends["zeroed"] = False
    with pytest.raises(GuardError, match="zeroed"):
        step(batch_of("cpu"))
    with pytest.raises(TraceError, match="adds to the gradient of 'weight' that an earlier call has left"):
        step.recompile()
    ends["zeroed"] = True
    step(batch_of("cpu"))


def test_compiled_again_it_keeps_a_tensor_that_only_a_later_call_writes_to() -> None:
    """A look ahead of three steps (arXiv:1907.08610): its slow weights are in a list, and no call before reaches them."""
    nets = [nn.Linear(4, 3), nn.Linear(4, 3)]
    nets[1].load_state_dict(nets[0].state_dict())
    sgds = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    slow = [[p.detach().clone() for p in net.parameters()] for net in nets]

    def body_of(place: int) -> Any:
        net, sgd, kept, called = nets[place], sgds[place], slow[place], {"times": 0}

        def body(batch: Any) -> None:
            sgd.zero_grad()
            F.cross_entropy(net(batch["x"]), batch["t"]).backward()
            sgd.step()
            called["times"] += 1
            if called["times"] % 3 == 0:
                with torch.no_grad():
                    for p, q in zip(net.parameters(), kept, strict=True):
                        p.copy_(q.lerp_(p, 0.5))

        return body

    eager, step = body_of(1), compile_step(body_of(0), example=batch_of("cpu"), device="cpu")
    for number in range(6):
        eager(batch_of("cpu", seed=number))
        try:
            step(batch_of("cpu", seed=number))
        except GuardError as error:
            assert number != 2 or "writes to a tensor that no module has" in str(error)
            step.recompile()
            step(batch_of("cpu", seed=number))
        for ours, theirs in zip(
            (*nets[0].parameters(), *slow[0]), (*nets[1].parameters(), *slow[1]), strict=True
        ):
            torch.testing.assert_close(ours, theirs)
