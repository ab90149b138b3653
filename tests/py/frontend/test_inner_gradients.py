"""Gradients that a step takes itself, to any order, beside torch in float64: in a loss, and in a loop body."""

from __future__ import annotations

from typing import Any

import inner_gradient_cases
import pytest
import torch
import transform_cases
from beside_torch import assert_near, assert_trains
from inner_gradient_cases import Batch, a_batch

from aicf_mlir import compile_step, compile_train_step

TOLERANCE = 1e-11

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own jvp

CASES = inner_gradient_cases.CASES | transform_cases.CASES


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return CASES[name][0]().double()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(12)
def test_a_loss_that_takes_gradients_trains_as_in_torch(name: str) -> None:
    assert_trains(model_of(name), CASES[name][1], a_batch(), TOLERANCE)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(12)
def test_a_loop_body_that_takes_gradients_trains_as_in_torch(name: str) -> None:
    loss_of, batch = CASES[name][1], a_batch()

    def world() -> tuple[torch.nn.Module, Any]:
        model = model_of(name)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def body(b: Batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, b)
            loss.backward()
            optimizer.step()
            return loss

        return model, body

    (ours, body), (theirs, reference) = world(), world()
    step = compile_step(body, example=[batch], device="cpu")
    for _ in range(3):
        wanted = reference({key: tensor.detach() for key, tensor in batch.items()})
        assert_near(step(dict(batch)).detach(), wanted.detach(), TOLERANCE, "loss")
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)


def test_a_parameter_has_a_gradient_where_it_has_one_in_torch() -> None:
    """Weight decay moves a parameter whose gradient is 0, and none without a gradient."""
    batch = a_batch()
    ours, theirs = model_of("vanishing"), model_of("vanishing")
    loss = CASES["vanishing"][1]
    step, expected = (torch.optim.AdamW(each.parameters(), weight_decay=0.5) for each in (ours, theirs))
    compiled = compile_train_step(ours, step, loss_fn=loss, example=batch, device="cpu")
    for _ in range(2):
        compiled.train_step(dict(batch))
        expected.zero_grad()
        loss(theirs, {key: tensor.detach() for key, tensor in batch.items()}).backward()
        expected.step()
    gradients = {name: each.grad for name, each in theirs.named_parameters()}
    assert gradients["0.bias"] is not None
    assert gradients["2.bias"] is None
    for (key, got), wanted in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), TOLERANCE, key)
    assert len(step.state) == len(expected.state)
