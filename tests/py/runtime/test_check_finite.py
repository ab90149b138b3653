"""`check_finite=True`: a loss or a gradient that is not finite skips the step, and the error names what made it."""

from __future__ import annotations

import pytest
import torch
from checked_step import (
    CLASSES,
    FEATURES,
    OPTIMIZERS,
    Batch,
    Side,
    changed,
    loss_fn,
    make_batch,
    make_model,
    squared,
)

from aicf_mlir import NonFiniteError, OutOfRangeError
from aicf_mlir.runtime import status


def test_replay_says_how_many_steps_are_done() -> None:
    """A step may fail after others: here the gradient overflows at some point, as it does in eager steps."""
    side = Side("sgd", "cpu", check_finite=True, loss=diverging)
    other = Side("sgd", "cpu", check_finite=True, loss=diverging)
    batch = make_batch(1)
    done = 0
    with pytest.raises(NonFiniteError):
        while True:
            other.step.train_step(batch)
            done += 1
    assert done > 2
    side.step.train_step(batch)
    side.step.capture(batch)
    with pytest.raises(NonFiniteError, match=f"{done - 1} of 1000 before it are done"):
        side.step.replay(1000)
    assert side.bytes() == other.bytes()
    assert side.optimizer.state_dict()["state"] == other.optimizer.state_dict()["state"]


def diverging(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    y = model(batch["x"])
    return (y * y).sum() * 1e3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_a_batch_that_is_not_finite_is_refused_on_request(
    number: float, dtype: torch.dtype, device: str
) -> None:
    side = Side("adamw", device, check_finite=True, dtype=dtype, loss=squared)
    batch = make_batch(1, device, dtype)
    side.train(batch)
    with side.refused(NonFiniteError, f"[2, 3] of the batch's 'x' is {number}", "the loss is nan"):
        side.train(changed(batch, "x", (2, 3), number))
    side.train(batch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_an_overflow_names_the_op_that_made_it(dtype: torch.dtype, device: str) -> None:
    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        y = model(batch["x"])
        z = y * batch["scale"]
        w = z * z  # here
        return w.mean()

    batch = {"x": make_batch(1, device, dtype)["x"], "scale": torch.ones((), device=device, dtype=dtype)}
    side = Side("adam", device, dtype, example=batch, loss=loss, check_finite=True)
    side.train(batch)
    scale = torch.full((), torch.finfo(dtype).max ** 0.75, device=device, dtype=dtype)
    with side.refused(NonFiniteError, "w = z * z  # here", "mul made the first inf, of finite operands"):
        side.train({**batch, "scale": scale})
    side.train(batch)


def test_a_gradient_can_overflow_where_the_loss_does_not(device: str) -> None:
    def loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return (model(batch["x"]) * batch["scale"]).mean()

    batch = {"x": make_batch(1, device)["x"], "scale": torch.ones((), device=device)}
    model = torch.nn.Linear(FEATURES, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    side = Side("sgd", device, model=model, example=batch, loss=loss, check_finite=True)
    huge = {"x": batch["x"] * 1e20, "scale": torch.full((), 3e38, device=device)}
    with side.refused(NonFiniteError, "the gradient of 'weight' is", "of finite operands"):
        side.train(huge)
    side.train(batch)


def test_a_parameter_that_is_not_finite_is_named(device: str) -> None:
    side = Side("adam", device, check_finite=True)
    with torch.no_grad():
        next(side.model.parameters())[1, 2] = float("nan")
    with side.refused(NonFiniteError, "[1, 2] of parameter '0.weight' is nan"):
        side.train(make_batch(1, device))


def test_labels_are_checked_before_numbers(device: str) -> None:
    side = Side("adam", device, check_finite=True)
    batch = changed(make_batch(1, device), "label", (0,), CLASSES)
    with side.refused(OutOfRangeError, "Target 5"):
        side.train(changed(batch, "x", (0, 0), float("nan")))
    with side.refused(NonFiniteError, "'x' is nan"):
        side.train(changed(make_batch(1, device), "x", (0, 0), float("nan")))


def test_without_the_request_a_nan_trains_as_in_torch(device: str) -> None:
    side = Side("sgd", device)
    batch = changed(make_batch(1, device), "x", (2, 3), float("nan"))
    side.train(batch)
    eager = make_model()
    optimizer = OPTIMIZERS["sgd"](eager.parameters())
    loss_fn(eager, {name: tensor.cpu() for name, tensor in batch.items()}).backward()
    optimizer.step()
    for ours, theirs in zip(side.model.parameters(), eager.parameters(), strict=True):
        assert torch.equal(ours.isnan().cpu(), theirs.isnan())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_checks_change_no_bit_of_a_good_step(optimizer: str, device: str) -> None:
    plain, checked = Side(optimizer, device), Side(optimizer, device, check_finite=True)
    for side in (plain, checked):
        for seed in range(3):
            side.step.train_step(make_batch(seed, device))
        side.step.capture(make_batch(3, device))
        side.step.replay(4, sync=True)
    assert plain.bytes() == checked.bytes()


def test_a_sum_that_overflows_on_the_way_is_told_apart() -> None:
    """Exactly it is zero: the interpreter, in float64, finds nothing to blame."""
    model = torch.nn.Linear(512, 1, bias=False)
    with torch.no_grad():
        model.weight[:, :256], model.weight[:, 256:] = 1e20, -1e20
    example = {"x": torch.full((2, 512), 1e18)}
    side = Side(
        "sgd", "cpu", model=model, example=example, loss=lambda m, b: m(b["x"]).sum(), check_finite=True
    )
    with side.refused(
        NonFiniteError,
        "a sum on the way overflows in the precision of the step, though its result would not; the loss is",
    ):
        side.train({"x": torch.full((2, 512), 3e18)})


def test_a_step_that_is_too_large_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "SEARCHED_BYTES", 1000)
    side = Side("adam", "cpu", check_finite=True)
    with side.refused(NonFiniteError, "the step is too large to look for the first", "the loss is nan"):
        side.train(changed(make_batch(1), "x", (0, 0), float("nan")))
