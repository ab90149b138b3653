"""Checkpointed layers beside torch, which calls them again where the gradient is taken: statistics of norms follow twice."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aicf_mlir import compile_eval_step, compile_step, compile_train_step
from aicf_mlir.errors import TraceError


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


class Writes(nn.Module):
    """A counter written in a checkpointed function, at some place of it."""

    c: torch.Tensor

    def __init__(self, where: str, reentrant: bool):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.where, self.reentrant = nn.Linear(4, 4), where, reentrant
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("c", torch.zeros(()))

    def part(self, x: torch.Tensor) -> torch.Tensor:
        if self.where in ("first", "beside what is kept"):
            self.c.add_(1)
        if self.where == "beside what is kept":  # of the two results the gradient needs none that is kept
            return (x.sin(), x + 1)[1]
        if self.where == "behind a draw":
            x = self.drop(x)
            self.c.add_(1)
        x = self.layer(x).tanh()
        if self.where in ("last", "before a sum"):
            self.c.add_(1)
        return x + 1 if self.where == "before a sum" else self.norm(x) if self.where == "norm" else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer(x)
        found: Any = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return (found.detach() if self.where == "detached" else found).sum() + x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(
    "where", ["first", "last", "before a sum", "behind a draw", "norm", "detached", "beside what is kept"]
)
def test_what_is_written_is_as_in_torch_or_refused(where: str, reentrant: bool) -> None:
    """Torch's second call ends at the last value that a gradient needs, unless it is reentrant, and repeats draws."""
    ours = Writes(where, reentrant)
    theirs, batch = copy.deepcopy(ours), {"x": torch.randn(3, 4)}
    sgd = torch.optim.SGD(ours.parameters(), lr=0.1)
    refused = where == "behind a draw" or (not reentrant and where in ("last", "before a sum"))
    if refused:
        with pytest.raises(
            TraceError, match=r"under torch\.utils\.checkpoint .*writes to a buffer.*write outside"
        ):
            compile_train_step(ours, sgd, loss_fn=loss_of, example=batch, device="cpu")
        return
    step = compile_train_step(ours, sgd, loss_fn=loss_of, example=batch, device="cpu")
    step.train_step(batch)
    loss_of(theirs, batch).backward()
    for name, buffer in theirs.named_buffers():
        torch.testing.assert_close(
            dict(ours.named_buffers())[name], buffer, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_an_evaluation_step_and_a_gradient_inside_are_refused() -> None:
    batch = {"x": torch.randn(3, 4)}
    with pytest.raises(TraceError, match="whether a gradient follows is not known"):
        compile_eval_step(Writes("norm", False), loss_fn=loss_of, example=batch, device="cpu")

    def penalty(model: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
        x = given["x"].requires_grad_()
        return torch.autograd.grad(model(x), x, create_graph=True)[0].square().sum()

    model = Writes("norm", False)
    with pytest.raises(TraceError, match="takes a gradient through it itself"):
        compile_train_step(
            model, torch.optim.SGD(model.parameters(), lr=0.1), loss_fn=penalty, example=batch, device="cpu"
        )
