"""Checkpointed layers beside torch, which calls them again where the gradient is taken: statistics of norms follow twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aicf_mlir import compile_step, compile_train_step


class Net(nn.Module):
    """A part that is computed again, with two norms, one of them used outside too."""

    def __init__(self, reentrant: bool):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.reentrant = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), reentrant
        self.norm, self.shared = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def part(self, x: torch.Tensor) -> torch.Tensor:
        return self.shared(self.last(torch.relu(self.norm(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        again: Any = checkpoint(self.part, self.shared(self.first(x)), use_reentrant=self.reentrant)
        return again.square().mean()


def loss_of(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(batch["x"])


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("body", [False, True])
def test_statistics_follow_as_in_torch(body: bool, reentrant: bool) -> None:
    ours = Net(reentrant)
    theirs = copy.deepcopy(ours)
    batch = {"x": torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))}
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (ours, theirs)]

    def trains(number: int, b: dict[str, torch.Tensor]) -> torch.Tensor:
        optimizers[number].zero_grad()
        loss = loss_of((ours, theirs)[number], b)
        loss.backward()
        optimizers[number].step()
        return loss

    if body:
        step: Any = compile_step(lambda b: trains(0, b), example=batch, device="cpu")
    else:
        step = compile_train_step(ours, optimizers[0], loss_fn=loss_of, example=batch, device="cpu")
    for _ in range(3):
        step.train_step(batch)
        trains(1, batch)
    expected = theirs.state_dict()
    assert expected["norm.num_batches_tracked"] == 6
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, expected[name], msg=lambda text, name=name: f"{name}: {text}")
