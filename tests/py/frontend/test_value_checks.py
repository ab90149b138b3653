"""Values that torch refuses while it runs: a step that meets one changes nothing and says which, and training goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from value_cases import CASES, Case, Net, batch_of

import aicf_mlir
from aicf_mlir import DataError, TraceError, compile_train_step
from aicf_mlir.dialects.nn.value_rules import RULES
from aicf_mlir.step.compile import compile_eval_step

ERRORS = (RuntimeError, ValueError, AssertionError)
"""What torch, its layers in Python and the user raise."""


def made(case: Case, dtype: torch.dtype, device: str, **options: Any) -> tuple[Net, Any]:
    model = Net(dtype if dtype.is_floating_point else torch.float32).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    example = moved(batch_of(case.taken, dtype), device)
    step = compile_train_step(
        model, optimizer, loss_fn=case.loss, example=example, device=device, seed=1, **options
    )
    return model, step


def moved(batch: dict[str, Tensor], device: str) -> dict[str, Tensor]:
    return {name: value.to(device) for name, value in batch.items()}


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, case in CASES.items() for dtype in case.dtypes]
)
def test_a_step_fails_where_torch_raises(name: str, dtype: torch.dtype, device: str) -> None:
    case = CASES[name]
    model, step = made(case, dtype, device)
    for value in (*case.taken, *case.refused):
        batch = batch_of((case.taken[0], value), dtype)
        try:
            case.loss(Net(model.w.dtype), batch)
            raises = False
        except ERRORS:
            raises = True
        assert raises == (str(value) in map(str, case.refused)), value
        before = model.w.detach().clone()
        if raises:
            with pytest.raises(DataError, match="skipped whole"):
                step.train_step(moved(batch, device))
                step.synchronize()
            assert torch.equal(model.w, before)
            continue
        step.train_step(moved(batch, device))
        step.synchronize()
        with torch.no_grad():
            model.w.copy_(before)


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES.values()} == RULES.keys()


TEXTS = {
    "bce of an input": (
        1.5,
        r"binary_cross_entropy: expected a number from 0 to 1, got 1.5 at \[1\] of the batch's 'v'",
    ),
    "floor division": (
        0,
        r"floor_divide: expected a whole number that is not 0, got 0 at \[1\] of the batch's 'v'",
    ),
    "gaussian nll": (-1.0, r"value_cases.py:\d+ .*does not hold: `raise ValueError\(\"var has negative"),
    "an assert": (
        float("nan"),
        r"value_cases.py:\d+ .*does not hold: `assert not b\[\"v\"\].isnan\(\).any\(\), \"a NaN\"` \(value_",
    ),
    "_assert_async": (-1.0, "does not hold: negative. The step was skipped whole"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_error_says_what_and_where(name: str) -> None:
    value, text = TEXTS[name]
    case = CASES[name]
    _, step = made(case, case.dtypes[0], "cpu")
    with pytest.raises(DataError, match=text):
        step.train_step(batch_of((case.taken[0], value), case.dtypes[0]))


@pytest.mark.parametrize("name", ["bce of a target", "remainder", "gaussian nll"])
def test_a_replay_fails_whole_too(name: str, device: str) -> None:
    """With momentum, whose state is that of the steps that were taken."""
    case = CASES[name]
    dtype = case.dtypes[0]
    good, bad = (moved(batch_of(values, dtype), device) for values in (case.taken[:1], case.refused[:1]))
    model, step = made(case, dtype, device)
    other, reference = made(case, dtype, device)
    for each in (step, reference):
        each.train_step(good)
        each.capture(good)
    for _ in range(2):
        with pytest.raises(DataError):
            step.replay(2, inputs=bad)
            step.synchronize()
        for each in (step, reference):
            each.replay(inputs=good)
            each.synchronize()
    assert torch.equal(model.w, other.w)


def test_other_kinds_of_steps(device: str) -> None:
    case = CASES["bce of a target"]
    good, bad = (moved(batch_of(v, torch.float32), device) for v in (case.taken, case.refused))
    model = Net().to(device)
    evaluated = compile_eval_step(model, loss_fn=case.loss, example=good, device=device)
    with pytest.raises(DataError, match="binary_cross_entropy: expected"):
        evaluated.eval_step(bad)
        evaluated.synchronize()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @aicf_mlir.train_step(device=device)
    def body(batch: dict[str, Tensor]) -> Tensor:
        optimizer.zero_grad()
        loss = case.loss(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    step: Any = body
    step(good)
    before = model.w.detach().clone()
    with pytest.raises(DataError, match="binary_cross_entropy: expected"):
        step(bad)
        step.step.synchronize()
    assert torch.equal(model.w, before)
    accumulated = made(case, torch.float32, device, accumulate=2)
    before = accumulated[0].w.detach().clone()
    with pytest.raises(DataError, match="binary_cross_entropy: expected"):
        accumulated[1].train_step([good, bad])
        accumulated[1].synchronize()
    assert torch.equal(accumulated[0].w, before)


def caught(model: Net, batch: dict[str, Tensor]) -> Tensor:
    try:
        if batch["v"].max() > 10:
            raise ValueError
    except ValueError:
        return model.w.sum()
    return model.w.mean()


def branching(model: Net, batch: dict[str, Tensor]) -> Tensor:
    if batch["v"].max() > 10:
        return model.w.sum()
    return model.w.mean()


def both(model: Net, batch: dict[str, Tensor]) -> Tensor:
    if batch["v"].max() > 10:
        raise ValueError
    raise RuntimeError


@pytest.mark.parametrize("loss", [caught, branching, both])
def test_what_goes_on_either_way_is_control_flow(loss: Any) -> None:
    with pytest.raises(TraceError, match="branches on the value of a tensor"):
        made(Case(loss, (1.0,), ()), torch.float32, "cpu")


def test_a_division_by_the_number_0_is_refused() -> None:
    case = Case(lambda m, b: (m.w * (b["v"] // 0)).sum(), (1,), ())
    with pytest.raises(TraceError, match="floor_divide of whole numbers by 0"):
        made(case, torch.int64, "cpu")
