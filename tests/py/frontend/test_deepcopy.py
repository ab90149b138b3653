"""`copy.deepcopy` in a step: of a model, its state and a tensor, each a value of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from aicf_mlir import TraceError, compile_step, compile_train_step

Batch = dict[str, Tensor]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()


def a_batch(seed: int = 0) -> Batch:
    torch.manual_seed(seed)
    return {"x": torch.randn(6, 3).double(), "t": torch.randn(6, 2).double()}


def of_teacher(model: Any, b: Batch) -> Tensor:
    teacher = copy.deepcopy(model).eval()
    with torch.no_grad():
        seen = teacher(b["x"])
    return mse_loss(model(b["x"]), seen) + mse_loss(model(b["x"]), b["t"])


def of_twins(model: Any, b: Batch) -> Tensor:
    """No gradient of the copy reaches the model."""
    twin = copy.deepcopy(model)
    assert isinstance(twin[0].weight, nn.Parameter)
    return (model(b["x"]) * twin(b["x"])).mean() + (copy.deepcopy(model[0].bias) * model[0].bias).sum()


def of_changed_batch(model: Any, b: Batch) -> Tensor:
    other = copy.deepcopy(b)
    other["x"] *= 2
    return mse_loss(model(other["x"]), b["t"]) + b["x"].mean()


@pytest.mark.parametrize("loss", [of_teacher, of_twins, of_changed_batch])
def test_a_loss_trains_as_in_torch(loss: Callable[[Any, Batch], Tensor]) -> None:
    ours, theirs = net(), net()
    optimizer, eager = (torch.optim.SGD(each.parameters(), 0.1) for each in (ours, theirs))
    step = compile_train_step(ours, optimizer, loss_fn=loss, example=a_batch(), device="cpu")
    for seed in range(3):
        expected = loss(theirs, a_batch(seed))
        eager.zero_grad()
        expected.backward()
        eager.step()
        torch.testing.assert_close(step.train_step(a_batch(seed)), expected.detach())
    for got, wanted in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(got, wanted)


def adapted(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Batch], Tensor]:
    """First-order MAML: a copy takes steps, and the model takes the gradient there."""

    def body(b: Batch) -> Tensor:
        fast: Any = copy.deepcopy(model)
        for _ in range(2):
            inner = mse_loss(fast(b["x"]), b["t"])
            found = torch.autograd.grad(inner, list(fast.parameters()))
            with torch.no_grad():
                for p, g in zip(fast.parameters(), found, strict=True):
                    p -= 0.1 * g
        loss = mse_loss(fast(b["x"]), b["t"])
        loss.backward()
        for p, q in zip(model.parameters(), fast.parameters(), strict=True):
            p.grad = q.grad.clone()
        optimizer.step()
        return loss

    return body


def averaged(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Batch], Tensor]:
    """Reptile: a step, then half of the way back."""

    def body(b: Batch) -> Tensor:
        before = copy.deepcopy(model.state_dict())
        optimizer.zero_grad()
        loss = mse_loss(model(b["x"]), b["t"])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.lerp_(before[name], 0.5)
        return loss

    return body


@pytest.mark.parametrize("made", [adapted, averaged])
def test_a_loop_body_trains_as_in_torch(made: Any) -> None:
    ours, theirs = net(), net()
    body, reference = (made(each, torch.optim.SGD(each.parameters(), 0.1)) for each in (ours, theirs))
    step = compile_step(body, example=a_batch(), device="cpu")
    for seed in range(3):
        torch.testing.assert_close(step(a_batch(seed)).detach(), reference(a_batch(seed)).detach())
    for got, wanted in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(got, wanted)


def test_what_torch_does_not_copy_is_refused() -> None:
    model = net()
    with pytest.raises(TraceError, match=r"test_deepcopy.py:\d+: .*Only Tensors created explicitly"):
        compile_train_step(
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            loss_fn=lambda m, b: copy.deepcopy(m(b["x"])).mean(),
            example=a_batch(),
            device="cpu",
        )
