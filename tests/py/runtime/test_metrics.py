"""Metrics over steps: torch's numbers after eager steps and replays, as before where a step is undone or skipped."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import classification, cross_entropy, mlp, to_device
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import (
    BindError,
    OutOfRangeError,
    StateError,
    TraceError,
    compile_eval_step,
    compile_train_step,
)

KINDS = {"accuracy": "mean", "correct": "sum", "hit": "sum", "worst": "max", "best": "min", "label": "max"}


def told(model: Any, batch: Any) -> Any:
    logits = model(batch["x"])
    hit = logits.argmax(1) == batch["t"]
    each = F.cross_entropy(logits, batch["t"], reduction="none")
    return F.cross_entropy(logits, batch["t"]), {
        "accuracy": hit.float().mean(),
        "correct": hit.sum(),
        "hit": hit.any(),
        "worst": each.max(),
        "best": each.min(),
        "label": batch["t"].max(),
        "logits": logits,
    }


def made(device: str, sizes: tuple[int, ...] = (6,), **options: Any) -> tuple[nn.Module, Any, list[Any]]:
    model = mlp(8, 16, 4).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = [to_device(classification(size, 8, 4, seed=size), device) for size in sizes]
    options = {"loss_fn": told, "metrics": KINDS, **options}
    return model, compile_train_step(model, optimizer, example=batches, device=device, **options), batches


def test_they_are_torchs_over_all_batch_sizes(device: str) -> None:
    model, step, batches = made(device, (6, 3))
    seen: list[dict[str, torch.Tensor]] = []
    for number in (0, 1, 0, 0):
        twin = copy.deepcopy(model)
        step.train_step(batches[number])
        seen.append({name: value.detach() for name, value in told(twin, batches[number])[1].items()})
    every = {name: torch.stack([each[name] for each in seen]) for name in KINDS}
    found = step.metrics()
    assert list(found) == list(KINDS)
    torch.testing.assert_close(found["accuracy"], every["accuracy"].double().mean())
    for name in ("correct", "hit"):
        assert found[name].dtype == torch.int64
        assert int(found[name]) == int(every[name].sum())
    torch.testing.assert_close(found["worst"], every["worst"].double().max(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["best"], every["best"].double().min(), rtol=1e-5, atol=1e-6)
    assert int(found["label"]) == int(every["label"].max())


def test_replays_gather_as_eager_steps_do_and_reset_begins_anew(device: str) -> None:
    _, eager, (batch,) = made(device)
    _, step, _ = made(device)
    step.train_step(batch)
    step.capture(batch)
    step.replay(4)
    for _ in range(5):
        eager.train_step(batch)
    assert_same_bits(step.metrics(), eager.metrics(reset=True))
    with pytest.raises(
        StateError, match="no step has been taken since the metrics began; there is nothing to read"
    ):
        eager.metrics()
    step.metrics(reset=True)
    step.replay(2)
    for _ in range(2):
        eager.train_step(batch)
    assert_same_bits(step.metrics(), eager.metrics())


def test_reading_hands_out_tensors_of_its_own(device: str) -> None:
    _, step, (batch,) = made(device)
    step.train_step(batch)
    first = step.metrics()
    copies = {name: value.clone() for name, value in first.items()}
    step.train_step(batch)
    assert_same_bits(first, copies)


def test_they_change_nothing_of_the_training(device: str) -> None:
    model, step, (batch,) = made(device)
    other, plain, _ = made(device, metrics=None)
    for _ in range(3):
        torch.testing.assert_close(step.train_step(batch), plain.train_step(batch))
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert set(model.state_dict()) == set(other.state_dict())


def test_what_is_undone_is_not_counted(device: str, tmp_path: Path) -> None:
    _, step, (batch,) = made(device)
    step.warmup(batch, 3)
    with pytest.raises(StateError, match="no step has been taken"):
        step.metrics()
    step.train_step(batch)
    before, snapshot = step.metrics(), step.snapshot()
    step.save(tmp_path / "file")
    for put_back in (lambda: step.restore(snapshot), lambda: step.load(tmp_path / "file")):
        step.train_step(batch)
        put_back()
        assert_same_bits(step.metrics(), before)
    certificate = step.capture(batch, verify="bitwise")
    assert certificate.equal, certificate
    assert_same_bits(step.metrics(), before)
    step.recompile()
    assert_same_bits(step.metrics(), before)


def test_a_skipped_step_adds_nothing(device: str) -> None:
    _, step, (batch,) = made(device)
    step.train_step(batch)
    before = step.metrics()
    with pytest.raises(OutOfRangeError, match="skipped whole"):
        step.train_step({**batch, "t": batch["t"] + 4})
        step.synchronize()
    assert_same_bits(step.metrics(), before)


def test_many_steps_are_counted_exactly() -> None:
    """A sum in f32 would stand still at 2^24."""
    model = nn.Linear(1, 1)
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        loss_fn=lambda m, b: (m(b["x"]).sum(), {"big": b["x"].sum(), "whole": b["n"].sum()}),
        example={"x": torch.ones(1, 1), "n": torch.ones(1, dtype=torch.int64)},
        device="cpu",
        metrics={"big": "sum", "whole": "sum"},
    )
    step.train_step({"x": torch.full((1, 1), 2.0**24), "n": torch.tensor([2**60])})
    for _ in range(3):
        step.train_step({"x": torch.ones(1, 1), "n": torch.ones(1, dtype=torch.int64)})
    found = step.metrics()
    assert (found["big"].item(), found["whole"].item()) == (2**24 + 3, 2**60 + 3)


def test_an_evaluation_step_gathers(device: str) -> None:
    model, _, (batch,) = made(device)
    model.eval()
    step = compile_eval_step(model, loss_fn=told, example=batch, device=device, metrics={"correct": "sum"})
    step.eval_step(batch)
    step.capture(batch)
    step.replay(2)
    assert int(step.metrics(reset=True)["correct"]) == 3 * int(told(model, batch)[1]["correct"])


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no output": (
        {"recall": "mean"},
        TraceError,
        r"the metric 'recall' is no output: let loss_fn return .*'logits'",
    ),
    "no kind": (
        {"accuracy": "median"},
        BindError,
        "the metric 'accuracy' must be one of mean, sum, max, min, got 'median'",
    ),
    "a list": (["accuracy"], BindError, "metrics must be a dictionary such as .*, got list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_metric(name: str) -> None:
    metrics, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        made("cpu", metrics=metrics)


def test_no_outputs_and_no_metrics() -> None:
    with pytest.raises(TraceError, match="the outputs are none"):
        made("cpu", loss_fn=cross_entropy)
    _, step, _ = made("cpu", metrics=None)
    with pytest.raises(BindError, match="the step has no metrics; compile it with metrics="):
        step.metrics()


def test_a_metric_has_one_shape_for_all_batch_sizes(device: str) -> None:
    with pytest.raises(
        TraceError, match=r"gathers float64\[6, 4\], but the output is float32\[3, 4\] for another"
    ):
        made(device, (6, 3), metrics={"logits": "mean"})
    _, step, (batch,) = made(device, metrics={"logits": "mean"})
    step.train_step(batch)
    assert step.metrics()["logits"].shape == (6, 4)
