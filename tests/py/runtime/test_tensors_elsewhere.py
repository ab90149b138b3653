"""Tensors of the user on another device than the step: it reads copies of them, which follow; they stay where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import BindError, CompiledTrainStep, TraceError, compile_train_step, trace
from aicf_mlir.runtime.binding import expect_here

ROWS, WIDTH = 6, 4
Batch = dict[str, torch.Tensor]


class Masked(nn.Module):
    """Reads a mask, places and a factor that lie on the host, in the three ways that torch allows."""

    def __init__(self, held: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) * self.held["mask"].to(x.device)
        return y[self.held["places"]] * self.held["factor"]


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    return model(batch["x"]).square().mean()


def held() -> dict[str, torch.Tensor]:
    return {
        "mask": torch.rand(ROWS, WIDTH),
        "places": torch.tensor([3, 1, 1, 0]),
        "factor": torch.tensor(1.5),
    }


def made(tensors: dict[str, torch.Tensor]) -> tuple[CompiledTrainStep, Masked, Batch]:
    torch.manual_seed(0)
    model = Masked(tensors).cuda()
    batch = {"x": torch.randn(ROWS, WIDTH, device="cuda")}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    return compile_train_step(model, optimizer, loss_fn=loss_of, example=batch), model, batch


def expect_loss(got: torch.Tensor, model: Masked, batch: Batch) -> None:
    torch.testing.assert_close(got, loss_of(model, batch).detach())


@pytest.mark.gpu
def test_they_stay_and_are_followed() -> None:
    tensors = held()
    places = {name: (tensor.device, tensor.data_ptr()) for name, tensor in tensors.items()}
    step, model, batch = made(tensors)
    expect_loss(step.train_step(batch), model, batch)
    tensors["mask"].mul_(0.5)
    tensors["factor"].fill_(3.0)
    expect_loss(step.train_step(batch), model, batch)
    step.capture(batch)
    tensors["places"].copy_(torch.tensor([5, 4, 3, 2]))
    expect_loss(step.replay(2, sync=True), model, batch)
    assert places == {name: (tensor.device, tensor.data_ptr()) for name, tensor in tensors.items()}


@pytest.mark.gpu
def test_other_memory_is_followed_and_another_shape_refused() -> None:
    tensors = held()
    step, model, batch = made(tensors)
    step.train_step(batch)
    tensors["mask"].data = torch.ones(ROWS, WIDTH)
    expect_loss(step.train_step(batch), model, batch)
    tensors["mask"].data = torch.ones(ROWS, 1)
    with pytest.raises(BindError, match="the plan expects f32"):
        step.train_step(batch)
    tensors["mask"].data = torch.full((ROWS, WIDTH), 2.0)
    expect_loss(step.train_step(batch), model, batch)


@pytest.mark.gpu
def test_a_file_has_them(tmp_path: Path) -> None:
    tensors = held()
    step, model, batch = made(tensors)
    before = step.train_step(batch).clone()
    step.save(tmp_path / "file")
    mask = tensors["mask"].clone()
    tensors["mask"].zero_()
    assert step.train_step(batch).item() == 0
    step.load(tmp_path / "file")
    assert torch.equal(tensors["mask"], mask)
    assert torch.equal(step.train_step(batch), before)
    expect_loss(before, model, batch)


@pytest.mark.gpu
def test_a_step_on_the_host_may_have_them() -> None:
    """It makes them views of its memory, which is no memory of the step on the GPU."""
    tensors = held()
    own = Masked(tensors)
    x = {"x": torch.randn(ROWS, WIDTH)}
    on_host = compile_train_step(
        own, torch.optim.SGD(own.parameters(), lr=0.1), loss_fn=loss_of, example=x, device="cpu"
    )
    step, model, batch = made(tensors)
    for factor in (1.0, 2.0):
        tensors["factor"].fill_(factor)
        expected = loss_of(own, x).detach()
        torch.testing.assert_close(on_host.train_step(x), expected)
        expect_loss(step.train_step(batch), model, batch)


@pytest.mark.gpu
def test_one_that_the_step_changes_is_refused() -> None:
    seen = torch.zeros(())

    def counting(model: Any, batch: Batch) -> torch.Tensor:
        seen.add_(1)
        return model(batch["x"]).square().mean()

    model = nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = {"x": torch.randn(ROWS, WIDTH, device="cuda")}
    with pytest.raises(TraceError, match="changes a tensor in place that is no buffer"):
        compile_train_step(model, optimizer, loss_fn=counting, example=batch)
    assert seen.device.type == "cpu"
    assert seen == 0


def test_what_a_step_trains_or_updates_must_be_on_its_device() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH, affine=False))
    batch = {"x": torch.randn(ROWS, WIDTH)}
    for frozen, name in ((False, "1.num_batches_tracked"), (True, "0.bias")):
        model.train(not frozen)
        traced = trace(model, loss_of, batch, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        text = f"'{name}' is on cpu, and the step on cuda changes it; move it to cuda, then compile"
        with pytest.raises(BindError, match=text):
            expect_here(traced, traced.module, {}, torch.device("cuda"))
        expect_here(traced, traced.module, {}, torch.device("cpu"))
