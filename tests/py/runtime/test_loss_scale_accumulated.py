"""`loss_scale` beside `accumulate=k`: numbers of f16 overflow where those of torch's `scaler.scale(loss / k).backward()` do."""

from __future__ import annotations

import math

import pytest
import torch
from models import Batch, regression, to_dtype
from scaled_training import Side
from torch import nn

from aicf_mlir import LossScale, compile_train_step

LIMIT = 2.0**16
"""The least power of two that f16 does not hold."""


class Halved(nn.Module):
    """The gradient of `weight`, which is of f32, is what comes through f16 of the loss's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight.half() * x).float().sum()


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(batch["x"])


@pytest.mark.parametrize("scale", [LIMIT / 2, LIMIT, LIMIT * 2, LIMIT * 4])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_share_of_the_scale_is_what_must_fit(scale: float, count: int, device: str) -> None:
    """And of the sum, which is of f32, all does."""
    model, theirs = Halved().to(device), Halved()
    batches = [{"x": torch.full((4,), 0.5**n, dtype=torch.float16)} for n in range(count)]
    for batch in batches:
        (loss_of(theirs, batch) / count * scale).backward()
    expected = theirs.weight.grad
    assert expected is not None
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        loss_fn=loss_of,
        example=batches[0],
        device=device,
        accumulate=count,
        loss_scale=scale,
        keep_gradients=True,
    )
    step.train_step([{"x": batch["x"].to(device)} for batch in batches])
    overflown = scale / count >= LIMIT
    assert math.isinf(expected[0]) == overflown
    assert step.skipped == int(overflown)
    if not overflown:
        torch.testing.assert_close(step.gradients["weight"].cpu(), expected / scale)


@pytest.mark.parametrize("count", [2, 3])
def test_thirty_steps_of_f16_beside_torch(count: int) -> None:
    """The scale is torch's after each, as it falls at first and then swings about what is held."""
    asked = LossScale(2.0**24, 2.0, 0.5, 4)
    ours, theirs = (Side("sgd", torch.float16, asked=asked) for _ in range(2))
    step = ours.compiled(accumulate=count)
    for number in range(30):
        parts = [to_dtype(regression(8, seed=100 * number + n), torch.float16) for n in range(count)]
        theirs.in_torch(parts)
        step.train_step(parts)
        ours.scales.append(step.loss_scale.item())
    assert ours.scales == theirs.scales
    assert min(ours.scales) < ours.scales[-1] < max(ours.scales)
