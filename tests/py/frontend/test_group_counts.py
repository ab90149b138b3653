"""Numbers that an optimizer's step counts in its param groups: torch's at every point of a life, or refused by name."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from models import Batch, mlp, mse, regression
from written_optimizers import RIGHT, CountsInGroup, Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import BindError, DataError, TraceError

both = pytest.mark.parametrize("name", ["counts-in-group", "counts-rates"])


def compiled(pair: Pair, batch: Batch, device: str = "cpu", **options: Any) -> Any:
    return compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device=device, **options)


def both_step(pair: Pair, step: Any, batch: Batch, count: int = 1) -> None:
    for _ in range(count):
        step.train_step(batch)
        pair.in_torch(batch)


@both
def test_a_life(name: str, device: str, tmp_path: Any) -> None:
    """Replay, changed numbers, a checkpoint of the step and one of torch, recompilation, the end."""
    pair = Pair(RIGHT[name], device, double=True)
    (batch,) = batches(device, 1, double=True)
    key, first = ("step", None) if name == "counts-in-group" else ("k", 0)
    step = compiled(pair, batch, device)
    step.warmup(batch)
    assert pair.ours.param_groups[0].get(key) == first
    both_step(pair, step, batch)
    step.capture(batch)
    step.replay(3)
    for _ in range(3):
        pair.in_torch(batch)
    pair.assert_equal(1e-10)
    assert pair.ours.param_groups[1][key] == 4
    pair.set("lr", 0.03)
    pair.set(key, 2, group=1)
    both_step(pair, step, batch)
    pair.assert_equal(1e-10)
    assert [group[key] for group in pair.ours.param_groups] == [5, 3]
    step.save(tmp_path / "saved")
    step.replay(2)
    step.load(tmp_path / "saved")
    pair.assert_equal(1e-10)
    pair.ours.load_state_dict(copy.deepcopy(pair.theirs.state_dict()))
    both_step(pair, step, batch, 2)
    pair.assert_equal(1e-10)
    step.recompile()
    both_step(pair, step, batch)
    pair.assert_equal(1e-10)
    step.close()
    assert [(type(group[key]), group[key]) for group in pair.ours.param_groups] == [(int, 8), (int, 6)]


@both
def test_a_step_loads_in_another(name: str, tmp_path: Any) -> None:
    pair, other = (Pair(RIGHT[name], "cpu", double=True) for _ in range(2))
    (batch,) = batches("cpu", 1, double=True)
    both_step(pair, step := compiled(pair, batch), batch, 3)
    step.save(tmp_path / "saved")
    resumed = compiled(other, batch)
    resumed.load(tmp_path / "saved")
    for _ in range(2):
        resumed.train_step(batch)
        pair.in_torch(batch)
    other.other, other.theirs, other.optimizers = pair.other, pair.theirs, (other.ours, pair.theirs)
    other.assert_equal(1e-10)


def test_all_state_removed_begins_again() -> None:
    pair = Pair(RIGHT["counts-in-group"], "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compiled(pair, batch)
    both_step(pair, step, batch, 2)
    for optimizer in pair.optimizers:
        optimizer.state.clear()
        for group in optimizer.param_groups:
            del group["step"]
    both_step(pair, step, batch)
    pair.assert_equal(1e-10)
    assert pair.ours.param_groups[0]["step"] == 1


def test_numbers_that_no_step_takes_are_refused() -> None:
    pair = Pair(RIGHT["counts-in-group"], "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compiled(pair, batch)
    step.train_step(batch)
    group = pair.ours.param_groups[0]
    group["step"] = "two"
    with pytest.raises(BindError, match="expected a number in 'step', got 'two'"):
        step.train_step(batch)
    del group["step"]
    with pytest.raises(BindError, match="has no 'step', and its parameters have state"):
        step.train_step(batch)
    group["step"] = 1
    step.train_step(batch)
    assert group["step"] == 2


def test_a_number_of_the_group_that_is_gone_is_refused() -> None:
    pair = Pair(RIGHT["counts-rates"], "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compiled(pair, batch)
    del pair.ours.param_groups[1]["k"]
    with pytest.raises(BindError, match="param group 1 has no 'k' any more"):
        step.train_step(batch)


def test_a_skipped_step_counts_nothing() -> None:
    pair = Pair(RIGHT["counts-in-group"], "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compiled(pair, batch, check_finite=True)
    both_step(pair, step, batch)
    with pytest.raises(DataError):
        step.train_step({**batch, "x": batch["x"] * torch.nan})
    assert pair.ours.param_groups[0]["step"] == 1
    both_step(pair, step, batch)
    pair.assert_equal(1e-10)


class Scaled(CountsInGroup):
    """Reads numbers that the user puts into the groups later."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            factor = group["strict"] * group.get("scale", 1.0)
            for p in group["params"]:
                p.add_(p.grad, alpha=-factor)
        super().step()


def test_a_later_entry_of_the_user_is_no_count() -> None:
    pair = Pair(lambda groups: Scaled(groups, lr=0.1, beta=0.9), "cpu", double=True)
    (batch,) = batches("cpu", 1, double=True)
    for group in (0, 1):
        pair.set("strict", 0.1, group)
        pair.set("scale", 0.5, group)
    step = compiled(pair, batch)
    both_step(pair, step, batch)
    pair.set("scale", 0.2)
    both_step(pair, step, batch)
    pair.assert_equal(1e-10)


class SetsRate(Written):
    """Changes the rate, which belongs to the user."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["lr"] *= 0.9
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])


class KeepsInt8(Written):
    """State of a type that no step has."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            state["small"] = grad.to(torch.int8)
            p.add_(grad, alpha=-group["lr"])


class NamesOfGroups(Written):
    """State under a name that stands for a number of the group."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            state["group.step"] = state.get("group.step", 0) + 1
            p.add_(grad, alpha=-group["lr"])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (SetsRate, r"changes param_groups\[0\]\['lr'\], which only the host may set"),
        (KeepsInt8, "a tensor of torch.int8 in 'small'"),
        (NamesOfGroups, "'group.step' in the state of a parameter"),
    ],
)
def test_refused_by_name(kind: type[Written], reason: str) -> None:
    model = mlp(8, 17, 8)
    with pytest.raises(TraceError, match=reason):
        compile_train_step(model, kind(model.parameters(), lr=0.1), loss_fn=mse, example=regression())


def test_a_group_that_trains_nothing_cannot_count() -> None:
    model: Any = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 8), "idle": torch.nn.Linear(8, 8)})
    groups = [{"params": model[name].parameters()} for name in ("used", "idle")]
    with pytest.raises(TraceError, match=r"param_groups\[1\]\['step'\], and no parameter of this group"):
        compile_train_step(
            model,
            CountsInGroup(groups, lr=0.1, beta=0.9),
            loss_fn=lambda model, b: (model["used"](b["x"]) - b["t"]).square().mean(),
            example=regression(),
        )
