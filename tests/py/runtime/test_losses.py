"""The loss of a replay is a tensor of its own, wherever it is asked for."""

from __future__ import annotations

import pytest
import torch
from models import Setup, compiled
from torch._subclasses.fake_tensor import FakeTensorMode

from aicf_mlir.errors import GuardError
from aicf_mlir.runtime.tensors import FreshTensors


def captured(device: str = "cpu") -> Setup:
    setup = compiled(lambda model: torch.optim.Adam(model.parameters()), device)
    setup.step.warmup(setup.batch)
    setup.step.capture(setup.batch)
    return setup


def test_each_is_its_own(device: str) -> None:
    step = captured(device).step
    losses = [step.replay() for _ in range(2 * FreshTensors.MANY + 3)]
    found = [loss.item() for loss in losses]
    assert len(set(found)) > FreshTensors.MANY, "losses that fall"
    losses[5].zero_()
    assert [loss.item() for loss in losses] == [*found[:5], 0.0, *found[6:]]
    assert all(loss.shape == () and not loss.requires_grad and loss.is_leaf for loss in losses)


def test_one_from_inference_mode_is_a_usual_tensor() -> None:
    step = captured().step
    with torch.inference_mode():
        loss = step.replay()
    loss.add_(1.0)
    assert not loss.is_inference()


def test_no_step_is_taken_where_no_loss_can_be() -> None:
    setup = captured()
    for _ in range(FreshTensors.MANY):  # the next one needs memory
        setup.step.replay()
    before = {name: value.clone() for name, value in setup.values().items()}
    with FakeTensorMode(), pytest.raises(GuardError, match="called inside a TorchDispatchMode"):
        setup.step.replay()
    assert all(torch.equal(before[name], value) for name, value in setup.values().items())
    assert type(setup.step.replay()) is torch.Tensor
