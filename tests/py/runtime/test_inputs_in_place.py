"""`step.inputs`: batches that are written where the step reads them, without a second one beside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import mlp, mse, regression, to_device
from oracle import assert_same_bits

from aicf_mlir import _C, compile_eval_step, compile_train_step

ROWS = 24
Batch = dict[str, torch.Tensor]


def made(device: str, loss: Any = mse, example: Any = None, **options: Any) -> tuple[torch.nn.Module, Any]:
    model = mlp(16, 9, 16).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    example = regression(ROWS, 16) if example is None else example
    return model, compile_train_step(
        model, optimizer, loss_fn=loss, example=example, device=device, **options
    )


def weights(model: torch.nn.Module) -> Batch:
    return {name: value.detach().cpu().clone() for name, value in model.named_parameters()}


def batches(device: str, count: int = 5) -> list[Batch]:
    return [to_device(regression(ROWS, 16, seed=seed), device) for seed in range(count)]


def write(there: Batch, batch: Batch) -> Batch:
    for name, tensor in there.items():
        tensor.copy_(batch[name])
    return there


@pytest.mark.parametrize("options", [{}, {"precision": "bf16"}], ids=["f32", "bf16"])
def test_steps_train_on_what_was_written(options: dict[str, Any], device: str) -> None:
    """Eager, by `replay(inputs=)` and by a replay alone, which reads the same memory: as with batches of the caller's."""
    (model, step), (other, beside) = made(device, **options), made(device, **options)
    first, *rest = batches(device)
    for each, given in ((step, write(step.inputs, first)), (beside, first)):
        each.train_step(given)
        each.capture(given)
    for number, batch in enumerate(rest):
        there = write(step.inputs, batch)
        losses = [step.replay() if number % 2 else step.replay(inputs=there), beside.replay(inputs=batch)]
        assert torch.equal(*losses)
    step.train_step(write(step.inputs, first))
    beside.train_step(first)
    for each in (step, beside):
        each.synchronize()
    assert_same_bits(weights(model), weights(other))


def test_there_is_no_second_batch(device: str) -> None:
    _, step = made(device)
    there = step.inputs
    assert {name: tensor.data_ptr() for name, tensor in there.items()} == {
        name: tensor.data_ptr() for name, tensor in step.inputs.items()
    }
    assert {name: (tensor.shape, tensor.device.type) for name, tensor in there.items()} == {
        name: (tensor.shape, device) for name, tensor in regression(ROWS, 16).items()
    }
    write(there, batches(device)[0])
    before = _C.memory_stats(device)["allocations"]
    step.train_step(there)
    step.synchronize()
    assert _C.memory_stats(device)["allocations"] == before
    assert torch.equal(there["x"], batches(device)[0]["x"]), "the step reads it"


def test_another_batch_is_written_over_them(device: str) -> None:
    _, step = made(device)
    one, two = batches(device, 2)
    there = write(step.inputs, one)
    step.train_step(two)
    step.synchronize()
    assert torch.equal(there["x"], two["x"])


def test_one_may_be_given_for_another(device: str) -> None:
    """As they are before anything is copied: also a part of the memory, and rows in another order."""
    (model, step), (other, beside) = made(device), made(device)
    (batch,) = batches(device, 1)
    there = write(step.inputs, batch)
    assert torch.equal(
        step.train_step({"x": there["t"], "t": there["x"]}),
        beside.train_step({"x": batch["t"], "t": batch["x"]}),
    )
    write(step.inputs, batch)
    mixed = {"x": there["x"].flip(0), "t": there["x"].view(-1, 16)[:, :]}
    assert torch.equal(step.train_step(mixed), beside.train_step({"x": batch["x"].flip(0), "t": batch["x"]}))
    assert_same_bits(weights(model), weights(other))


def test_they_have_the_form_of_a_batch(device: str) -> None:
    def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        x, rest = batch
        return mse(model, {"x": x, "t": rest["t"]})

    example = regression(ROWS, 16)
    model, step = made(device, loss, (example["x"], {"t": example["t"]}))
    other, beside = made(device)
    (batch,) = batches(device, 1)
    x, rest = step.inputs
    x.copy_(batch["x"])
    rest["t"].copy_(batch["t"])
    assert torch.equal(step.train_step(step.inputs), beside.train_step(batch))
    assert_same_bits(weights(model), weights(other))


def test_of_micro_batches_there_is_a_list(device: str) -> None:
    model, step = made(device, accumulate=3)
    other, beside = made(device, accumulate=3)
    given = batches(device, 3)
    there = step.inputs
    assert [sorted(part) for part in there] == [["t", "x"]] * 3
    for part, batch in zip(there, given, strict=True):
        write(part, batch)
    assert torch.equal(step.train_step(there), beside.train_step(given))
    assert_same_bits(weights(model), weights(other))


def test_they_are_those_of_the_shapes_loaded_last(device: str) -> None:
    long, short = regression(ROWS, 16), regression(7, 16)
    _, step = made(device, example=[long, short])
    assert step.inputs["x"].shape == (ROWS, 16)
    step.train_step(to_device(short, device))
    assert step.inputs["x"].shape == (7, 16)


def test_an_evaluation_step_has_its_own(device: str) -> None:
    model, step = made(device)
    (batch,) = batches(device, 1)
    evaluation = compile_eval_step(model, loss_fn=mse, example=batch, device=device)
    there = write(evaluation.inputs, batch)
    assert there["x"].data_ptr() != step.inputs["x"].data_ptr()
    assert torch.equal(evaluation.eval_step(there), evaluation.eval_step(batch))
