"""A model and an optimizer with a step of its own, in our hands and in torch's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from models import Batch, mlp, mse, regression, to_device
from written_optimizers import Config


def groups_of(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Two: the weights, and the biases at half the rate."""
    weights = [p for p in model.parameters() if p.dim() > 1]
    return [{"params": weights}, {"params": [p for p in model.parameters() if p.dim() < 2]}]


class Pair:
    """A model in our hands and the same in torch's."""

    def __init__(self, config: Config, device: str, double: bool = False, one_layer: bool = False):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(8, 8)) if one_layer else mlp(8, 17, 8)
        self.model = layers.to(device)
        self.model = self.model.double() if double else self.model
        self.other = copy.deepcopy(self.model)
        self.ours, self.theirs = config(groups_of(self.model)), config(groups_of(self.other))
        self.optimizers = (self.ours, self.theirs)

    def set(self, key: str, value: Any, group: int = 0) -> None:
        """An entry of a param group of both."""
        for optimizer in self.optimizers:
            optimizer.param_groups[group][key] = value

    def in_torch(self, batch: Batch) -> None:
        """A step of torch."""
        self.theirs.zero_grad()
        mse(self.other, batch).backward()
        self.theirs.step()

    def assert_equal(self, tolerance: float) -> None:
        """Parameters, states and the numbers of the groups are the same."""
        for ours, theirs in zip(
            *(each.state_dict()["param_groups"] for each in self.optimizers), strict=True
        ):
            assert list(map(type, ours.values())) == list(map(type, theirs.values()))
            assert ours == {
                key: pytest.approx(value, rel=tolerance) if isinstance(value, float) else value
                for key, value in theirs.items()
            }
        for p, q in zip(self.model.parameters(), self.other.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
            ours, theirs = self.ours.state[p], self.theirs.state[q]
            assert set(ours) == set(theirs)
            for key in theirs:
                ones = torch.as_tensor(ours[key]).detach().cpu().double()
                others = torch.as_tensor(theirs[key]).detach().cpu().double()
                torch.testing.assert_close(ones, others, rtol=tolerance, atol=tolerance)


def batches(device: str, count: int, double: bool = False) -> list[Batch]:
    given = [to_device(regression(seed=number), device) for number in range(count)]
    return [{name: t.double() for name, t in batch.items()} for batch in given] if double else given
