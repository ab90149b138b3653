"""Functions of torch that look at values where nobody sees it: indices by 0-d tensors, covariances, diagonals, statistics."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from beside_torch import assert_trains, compiled
from torch import nn
from trained_ops import Batch, Function, OfOp, assert_op_trains, weighed

from aicf_mlir import DataError, OutOfRangeError, TraceError


def batch() -> dict[str, torch.Tensor]:
    """Numbers of rows, and values beside the parameter."""
    drawn = torch.Generator().manual_seed(3)
    return {"row": torch.tensor([3, 0, -2, 1]), "beside": torch.randn(5, 8, generator=drawn)}


def assigned(x: Any, where: Any, value: Any) -> Any:
    """A copy of x with `value` written to some of it."""
    y = x.clone()
    y[where] = value
    return y


def added(x: Any, where: Any, value: Any) -> Any:
    """A copy of x with `value` added to some of it."""
    y = x.clone()
    y[where] += value
    return y


def changed(x: Any, change: Any) -> Any:
    """A copy of x after `change`, which works in place."""
    y = x.clone()
    change(y)
    return y


NUMBERS: dict[str, Function] = {
    "element": lambda x, b: x[0][x[0].argmax()][None],
    "row": lambda x, b: x[x[:, 0].argmin()],
    "of the batch": lambda x, b: x[b["row"][2]],
    "two": lambda x, b: x[b["row"][0], b["row"][1]][None],
    "column": lambda x, b: x[:, x[0].argmax()],
    "beside an index": lambda x, b: x.reshape(5, 2, 4)[b["row"][0], ..., None, b["row"][:2]],
    "behind None": lambda x, b: x[None, b["row"][0], 2:],
    "beside a number": lambda x, b: x[b["row"][1] - 5, 3][None],
    "int32": lambda x, b: x[b["row"].int()[2]],
    "assign": lambda x, b: assigned(x, b["row"][1], 1.0),
    "assign row": lambda x, b: assigned(x, x[:, 0].argmax(), x[0] * 2),
    "assign column": lambda x, b: assigned(x, (slice(None), b["row"][2]), x[:, 0] * 2),
    "assign behind others": lambda x, b: assigned(x, (None, 2, ..., b["row"][3]), 3.0),
    "assign two": lambda x, b: assigned(
        x.reshape(5, 2, 4), (b["row"][3], slice(None), b["row"][0]), x[0, :2]
    ),
    "assign one more": lambda x, b: assigned(x, b["row"][3], x[None, 4]),
    "add": lambda x, b: added(x, b["row"][0], x[0] * 2),
}

FUNCTIONS: dict[str, Function] = {
    "cov": lambda x, b: x.cov(),
    "cov of all": lambda x, b: torch.cov(x, correction=0),
    "cov of counts": lambda x, b: torch.cov(x, fweights=torch.arange(1, 9)),
    "cov weighed": lambda x, b: torch.cov(x, aweights=b["beside"][0].abs()),
    "cov of both": lambda x, b: torch.cov(x, fweights=torch.arange(8), aweights=b["beside"][0].abs()),
    "cov of a vector": lambda x, b: torch.cov(x[0])[None],
    "corrcoef": lambda x, b: torch.corrcoef(x),
    "nanmean": lambda x, b: torch.where(b["beside"] > 1, torch.nan, x).nanmean(1),
    "nansum": lambda x, b: torch.where(b["beside"] > 1, torch.nan, x).nansum(1),
    "fill diagonal": lambda x, b: changed(x, lambda y: y.fill_diagonal_(0.5)),
    "fill diagonal of a tall one": lambda x, b: changed(x.t(), lambda y: y.fill_diagonal_(0.5)),
    "fill diagonal again": lambda x, b: changed(x.t(), lambda y: y.fill_diagonal_(0.5, wrap=True)),
    "fill diagonal of cubes": lambda x, b: changed(x.reshape(-1)[:27].reshape(3, 3, 3), lambda y: y.fill_diagonal_(2)),
    "diagonal scatter": lambda x, b: x.diagonal_scatter(x[0, :5] * 2),
    "diagonal scatter above": lambda x, b: x.diagonal_scatter(x[0, :3] * 2, 5),
    "diagonal scatter below": lambda x, b: x.diagonal_scatter(x[0, :4], -1),
    "diagonal scatter of several": lambda x, b: torch.stack([x, x * 2], 1).diagonal_scatter(x[:2, :5], 0, 0, 2),
    "diagonal times": lambda x, b: changed(x, lambda y: y.diagonal(1).mul_(2)),
    "diagonal copy": lambda x, b: changed(x, lambda y: y.diagonal().copy_(x[0, :5])),
    "stack integers": lambda x, b: x[torch.stack([b["row"], b["row"] * 0])],
    "cat integers": lambda x, b: x[torch.cat([b["row"], b["row"].int()])],
    "stack booleans": lambda x, b: x * torch.stack([b["beside"][0] > 0] * 5),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_indices_by_numbers_train_as_torch(name: str) -> None:
    assert_op_trains(NUMBERS[name], batch())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_train_as_torch(name: str) -> None:
    assert_op_trains(FUNCTIONS[name], batch())


def test_a_number_outside_updates_nothing() -> None:
    torch.manual_seed(1)
    model, good = OfOp(lambda x, b: x[b["row"][0]], torch.float32), batch()
    step = compiled(model, weighed, good)
    step.train_step(good)
    before = model.weight.detach().clone()
    bad = {**good, "row": torch.tensor([5, 0, 0, 0])}
    with pytest.raises(OutOfRangeError, match=r"Index 5 is out of bounds"):
        step.train_step(bad)
        step.synchronize()
    assert torch.equal(model.weight, before)


def test_negative_weights_of_a_covariance_update_nothing() -> None:
    torch.manual_seed(1)
    model = OfOp(lambda x, b: torch.cov(x, aweights=b["beside"][0]), torch.float32)
    good = {**batch(), "beside": batch()["beside"].abs()}
    step = compiled(model, weighed, good)
    step.train_step(good)
    before = model.weight.detach().clone()
    with pytest.raises(DataError, match="weights cannot be negative"):
        step.train_step({**good, "beside": -good["beside"]})
        step.synchronize()
    assert torch.equal(model.weight, before)


class Normalized(nn.Module):
    """A layer of statistics between two linear ones."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.before, self.layer, self.behind = nn.Linear(8, 6), layer, nn.Linear(6, 2)

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.behind(self.layer(self.before(batch["beside"])))


LAYERS = {
    "of the batch": lambda: nn.BatchNorm1d(6, track_running_stats=False),
    "of the batch in evaluation": lambda: nn.BatchNorm1d(6, track_running_stats=False).eval(),
    "without weights": lambda: nn.BatchNorm1d(6, affine=False, track_running_stats=False),
    "of images": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 3, 1)), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten()
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_batch_statistics_that_nobody_keeps(name: str) -> None:
    torch.manual_seed(2)
    assert_trains(Normalized(LAYERS[name]()), weighed, batch())


class Lazy(nn.Module):
    """A buffer that gets its shape from the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, batch: Batch) -> torch.Tensor:
        y = self.linear(batch["beside"])
        if self.seen.shape != y.shape:
            self.seen = torch.zeros_like(y)
        self.seen = (self.seen + y).detach()
        return y + self.seen


def test_a_buffer_that_starts_empty_gets_its_shape_from_a_call() -> None:
    torch.manual_seed(2)
    model = Lazy()
    with pytest.raises(
        TraceError, match=re.escape("call the model once before, which gives the buffer its shape")
    ):
        compiled(model, weighed, batch())
    with torch.no_grad():
        model(batch())
    assert_trains(model, weighed, batch())
