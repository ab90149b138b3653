"""Class indices that a step cannot train on: refused as torch refuses them, with nothing changed; training goes on."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from checked_step import (
    CLASSES,
    IGNORED,
    OPTIMIZERS,
    ROWS,
    Batch,
    Side,
    changed,
    loss_fn,
    make_batch,
    make_model,
    parameters,
    squared,
)
from torch.nn import functional

from aicf_mlir import DataError, OutOfRangeError, compile_train_step
from aicf_mlir.step.compile import compile_eval_step

BAD_LABELS = {
    "one too large": (4, CLASSES),
    "far too large": (2, 2**40),
    "negative": (0, -1),
    "negative in the last row": (ROWS - 1, -7),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("label", BAD_LABELS)
def test_a_label_out_of_range_is_refused_and_training_goes_on(
    label: str, optimizer: str, device: str
) -> None:
    """Also in the very first step, where torch has no optimizer state yet; afterwards as if it had not been."""
    row, index = BAD_LABELS[label]
    side, other = Side(optimizer, device), Side(optimizer, device)
    batch = make_batch(1, device)
    bad = changed(batch, "label", (row,), index)
    texts = (
        f"Target {index} is out of bounds for cross_entropy",
        "expected a class in 0..4 or ignore_index (-100)",
        f"got {index} at [{row}] of the batch's 'label'",
        "checked_step.py:",
        'functional.cross_entropy(model(batch["x"]), batch["label"])',
        "skipped whole",
    )
    eager = make_model()
    with pytest.raises(IndexError, match=f"Target {index} is out of bounds"):
        loss_fn(eager, {name: tensor.cpu() for name, tensor in bad.items()})
    for seed in range(3):
        with side.refused(OutOfRangeError, *texts):
            side.train(bad)
        for one in (side, other):
            one.step.train_step(make_batch(seed, device))
    assert side.bytes() == other.bytes()
    with pytest.raises(IndexError):  # the class of torch's own error
        side.train(bad)


def test_an_error_in_the_first_step_publishes_no_state() -> None:
    side = Side("adam", "cpu")
    with pytest.raises(OutOfRangeError):
        side.train(changed(make_batch(1), "label", (0,), CLASSES))
    assert not side.optimizer.state
    assert side.step.state == "created"


def test_ignored_rows_are_no_error(device: str) -> None:
    side = Side("adam", device)
    batch = changed(make_batch(1, device), "label", (3,), IGNORED)
    side.train(batch)
    eager = make_model()
    optimizer = OPTIMIZERS["adam"](eager.parameters())
    loss_fn(eager, {name: tensor.cpu() for name, tensor in batch.items()}).backward()
    optimizer.step()
    for ours, theirs in zip(side.model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_another_ignored_index_makes_the_usual_one_an_error(device: str) -> None:
    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(batch["x"]), batch["label"], ignore_index=-1)

    side = Side("sgd", device, loss=loss)
    side.train(changed(make_batch(1, device), "label", (3,), -1))
    with side.refused(OutOfRangeError, "or ignore_index (-1), got -100 at [2]"):
        side.train(changed(make_batch(1, device), "label", (2,), IGNORED))


def test_the_place_is_that_of_the_batch_whatever_the_loss_does_with_it(device: str) -> None:
    """Labels [2, 3] of logits [2, classes, 3]."""

    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        logits = model(batch["x"]).reshape(2, 3, CLASSES).transpose(1, 2)
        return functional.cross_entropy(logits, batch["label"].reshape(2, 3))

    side = Side("sgd", device, loss=loss)
    with side.refused(OutOfRangeError, "got 9 at [4] of the batch's 'label'"):
        side.train(changed(make_batch(1, device), "label", (4,), 9))


def test_the_first_of_two_losses_is_named(device: str) -> None:
    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        y = model(batch["x"])
        first = functional.cross_entropy(y, batch["label"])
        return first + functional.cross_entropy(y.reshape(15, 2), batch["other"])

    batch = {**make_batch(1, device), "other": torch.zeros(15, dtype=torch.int64, device=device)}
    side = Side("adam", device, example=batch, loss=loss)
    both = changed(changed(batch, "label", (1,), 7), "other", (0,), 8)
    with side.refused(OutOfRangeError, "Target 7", "0..4", "first = functional"):
        side.train(both)
    with side.refused(OutOfRangeError, "Target 8", "0..1", "return first +"):
        side.train({**both, "label": batch["label"]})
    side.train(batch)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_captured_step_skips_and_goes_on(optimizer: str, device: str) -> None:
    """New inputs after an error, replays before and after it: contract B holds for the steps that were done."""
    side, eager = Side(optimizer, device), Side(optimizer, device)
    batches = [make_batch(seed, device) for seed in range(4)]
    for one in (side, eager):
        one.step.train_step(batches[0])
    side.step.capture(batches[1])
    side.step.replay(3, sync=True)
    for _ in range(3):
        eager.step.train_step(batches[1])
    bad = changed(batches[2], "label", (5,), -2)
    with side.refused(OutOfRangeError, "Target -2", "got -2 at [5]"):
        side.step.replay(5, inputs=bad, sync=True)
    with side.refused(OutOfRangeError, "Target -2"):  # the same inputs again
        side.step.replay(sync=True)
    loss = side.step.replay(2, inputs=batches[3], sync=True)
    last = [eager.step.train_step(batches[3]) for _ in range(2)][-1]
    assert side.bytes() == eager.bytes()
    assert torch.equal(loss, last)


def test_losses_that_were_returned_stay(device: str) -> None:
    side = Side("adam", device)
    losses = [side.step.train_step(make_batch(seed, device)) for seed in range(3)]
    values = [loss.item() for loss in losses]
    with pytest.raises(OutOfRangeError):
        side.train(changed(make_batch(1, device), "label", (0,), CLASSES))
    assert [loss.item() for loss in losses] == values


def test_warmup_and_capture_refuse_too_and_put_everything_back(device: str) -> None:
    side = Side("momentum", device, warmup_required=False)
    bad = changed(make_batch(1, device), "label", (0,), CLASSES)
    for call in (side.step.warmup, lambda batch: side.step.capture(batch)):
        before = side.bytes()
        with pytest.raises(OutOfRangeError):
            call(bad)
            side.step.synchronize()
        assert side.bytes() == before
    side.step.warmup(make_batch(1, device))
    side.step.capture(make_batch(1, device))
    side.step.replay(sync=True)


def test_several_shapes_share_the_status(device: str) -> None:
    model = make_model().to(device)
    optimizer = OPTIMIZERS["adam"](model.parameters())
    small = {name: tensor[:3] for name, tensor in make_batch(0, device).items()}
    step = compile_train_step(
        model, optimizer, example=[make_batch(0, device), small], device=device, loss_fn=loss_fn
    )
    step.train_step(small)
    before = parameters(model)
    with pytest.raises(OutOfRangeError, match="Target 5"):
        step.train_step(changed(small, "label", (1,), CLASSES))
        step.train_step(make_batch(0, device))  # on CUDA this one may be queued behind it: skipped as well
        step.synchronize()
    assert parameters(model) == before
    step.train_step(make_batch(0, device))
    step.synchronize()
    assert parameters(model) != before


def test_a_step_without_class_indices_has_no_check() -> None:
    side = Side("adam", "cpu", loss=squared)
    assert not any("check" in kernel for kernel in side.step.planned_kernels())
    assert "status" not in side.step.memory_report().arenas
    checked = Side("adam", "cpu")
    assert [kernel for kernel in checked.step.planned_kernels() if "check" in kernel] == ["check_index_cpu"]


def test_a_snapshot_sees_an_error_that_is_still_on_its_way(device: str) -> None:
    """And what it then holds is from before the failed step."""
    side = Side("adam", device)
    side.step.train_step(make_batch(1, device))
    before = deepcopy(parameters(side.model))
    with pytest.raises(OutOfRangeError):
        side.step.train_step(changed(make_batch(1, device), "label", (0,), CLASSES))
        side.step.snapshot()
    assert parameters(side.model) == before
    side.step.snapshot()


@pytest.mark.gpu
def test_steps_behind_a_failed_one_train_nothing() -> None:
    """They are on the device before the host knows; the error comes at the latest when the host waits."""
    side = Side("adam", "cuda")
    good, bad = make_batch(1, "cuda"), changed(make_batch(1, "cuda"), "label", (0,), CLASSES)
    side.step.train_step(good)
    side.step.capture(good)
    side.step.synchronize()
    before = parameters(side.model)
    seen = 0
    try:
        side.step.replay(inputs=bad)
        for _ in range(50):
            side.step.replay(inputs=good)
        side.step.synchronize()
    except OutOfRangeError as error:
        seen += 1
        assert "so were those behind it" in str(error)
    assert seen == 1
    assert parameters(side.model) == before
    side.step.replay(inputs=good, sync=True)
    assert parameters(side.model) != before


def test_a_code_that_the_step_does_not_have_is_reported_too() -> None:
    """Nothing that the status says is dropped, whoever wrote it."""
    side = Side("adam", "cpu")
    side.step._store.arenas["status"].write(0, b"\x63")  # pyright: ignore[reportPrivateUsage]
    with side.refused(DataError, "a check failed with code 99, which this step does not have"):
        side.train(make_batch(1))
    side.train(make_batch(1))


def test_a_batch_entry_may_be_called_status(device: str) -> None:
    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(model(batch["x"]), batch["status"])

    batch = make_batch(1, device)
    example = {"x": batch["x"], "status": batch["label"]}
    side = Side("adam", device, example=example, loss=loss)
    side.train(example)
    with side.refused(OutOfRangeError, "got 5 at [2] of the batch's 'status'"):
        side.train(changed(example, "status", (2,), CLASSES))


def test_an_evaluation_refuses_them_too(device: str) -> None:
    side = Side("adam", device)
    evaluate = compile_eval_step(side.model, example=make_batch(0, device), device=device, loss_fn=loss_fn)
    side.train(make_batch(0, device))
    with side.refused(OutOfRangeError, "Target -4 is out of bounds", "got -4 at [1] of the batch's 'label'"):
        evaluate.eval_step(changed(make_batch(0, device), "label", (1,), -4))
        evaluate.synchronize()
    assert evaluate.eval_step(make_batch(0, device)).isfinite()
