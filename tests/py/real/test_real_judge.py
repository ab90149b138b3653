"""The judge of `tests/real` tells a wrong training from a right one, and the runner an unknown reason from a known one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.real import case, harness, judge, missing


def work(rate: float = 1e-3, decay: float = 0.9) -> case.Work:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    model[1].momentum = 1 - decay
    return case.trained(
        model,
        lambda: {"x": torch.randn(8, 4)},
        lambda m, b: m(b["x"]).square().mean(),
        lambda parameters: torch.optim.AdamW(parameters, lr=rate),
    )


@pytest.mark.parametrize(
    ("changes", "where"),
    [({}, ""), ({"rate": 1.01e-3}, "parameter"), ({"decay": 0.89}, "buffer")],
)
def test_one_percent_is_wrong(changes: dict[str, float], where: str) -> None:
    truth = harness.eager(work)
    *_, others = harness.rounded(work)
    worst, name = judge.excess(harness.eager(lambda: work(**changes)), truth, others)
    assert (worst > 1) == bool(changes)
    assert name.startswith(where)


def test_rounding_is_right() -> None:
    truth, *others = (harness.eager(work, seed=seed) for seed in (None, 0, 1, 2, 3))
    worst, _ = judge.excess(harness.eager(work, seed=9), truth, others)
    assert worst <= 1


def test_a_movement_that_rounding_takes_away_is_right() -> None:
    truth = harness.eager(work)
    name, value = next((n, v) for n, v in truth.before.items() if n.startswith("parameter") and v.numel() > 8)
    still = judge.Run(truth.losses, truth.before, {**truth.after, name: value})
    for units, right in ((1, True), (40, False)):
        moved = {**truth.after, name: value * (1 + units * torch.finfo(torch.float32).eps)}
        worst, where = judge.excess(judge.Run(truth.losses, truth.before, moved), still, [still])
        assert (worst <= 1) == right, (worst, where)


def test_f64_is_judged_by_its_own_units() -> None:
    def in_f64(rate: float = 0.05) -> case.Work:
        made = work()
        optimizer = torch.optim.SGD(made.model.double().parameters(), lr=rate)
        return case.Work(made.model, lambda: {"x": torch.randn(8, 4).double()}, (optimizer,), loss=made.loss)

    truth, *others = (harness.eager(in_f64, seed=seed) for seed in (None, 0, 1, 2, 3))
    assert judge.excess(harness.compiled(in_f64), truth, others)[0] <= 1
    assert judge.excess(harness.eager(lambda: in_f64(0.05 * (1 + 1e-6))), truth, others)[0] > 1


def test_a_buffer_that_only_torch_has_is_a_table_or_a_fault() -> None:
    truth, other = harness.eager(work), harness.eager(work, seed=0)
    for moved, right in ((0.0, True), (1e-6, False)):
        table = torch.arange(4.0)
        runs = [
            judge.Run(run.losses, run.before, {**run.after, "buffer table": table + by})
            for run, by in ((truth, 0.0), (other, moved))
        ]
        assert (judge.excess(truth, runs[0], runs[1:])[0] <= 1) == right
    assert (
        judge.excess(
            judge.Run(truth.losses, truth.before, {**truth.after, "buffer x": table}), truth, [other]
        )[0]
        > 1
    )


def test_a_case_that_draws_has_to_say_so() -> None:
    def drawing() -> case.Work:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        return case.trained(model, lambda: {"x": torch.randn(8, 4)}, lambda m, b: m(b["x"]).square().mean())

    assert "draws random numbers" in harness.judged(drawing).detail


def test_a_state_that_is_missing_or_not_finite_is_wrong() -> None:
    truth = harness.eager(work)
    others = [harness.eager(work, seed=0)]
    name = next(iter(truth.after))
    broken = {**truth.after, name: truth.after[name] * float("nan")}
    for after in (broken, {key: value for key, value in truth.after.items() if key != name}):
        assert judge.excess(judge.Run(truth.losses, truth.before, after), truth, others)[0] > 1


def test_an_exception_is_a_crash_and_a_refusal_is_not() -> None:
    def failing(model: nn.Module, batch: case.Batch) -> torch.Tensor:
        raise KeyError("a defect of the case")

    def transformed() -> case.Work:
        return case.trained(
            nn.Linear(8, 8),
            lambda: {"x": torch.randn(2, 8)},
            lambda m, b: torch.fft.fft(m(b["x"])).acosh().abs().mean(),
        )

    assert harness.judged(lambda: case.trained(nn.Linear(2, 2), dict, failing)).outcome == "crash"
    assert harness.judged(work).outcome == "works"
    refused = harness.judged(transformed)
    assert (refused.outcome, missing.reason(refused.detail)) == ("refused", "complex numbers")
    assert missing.reason("something that nobody has met") is None
