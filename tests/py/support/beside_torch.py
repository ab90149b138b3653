"""A model trained for five steps, beside torch, and from the same state once more by replay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aicf_mlir import CompiledTrainStep, compile_train_step

Loss = Callable[[Any, Any], torch.Tensor]

STEPS = 5


def compiled(
    model: torch.nn.Module, loss: Loss, batch: Mapping[str, torch.Tensor], device: str = "cpu"
) -> CompiledTrainStep:
    """A step with plain gradient descent: what is compared are the gradients, not what an optimizer makes of noise."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return compile_train_step(model, optimizer, loss_fn=loss, example=dict(batch), device=device)


def losses_of_torch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    batch: Mapping[str, torch.Tensor],
    steps: int,
) -> list[torch.Tensor]:
    """The losses of so many steps of torch on one batch, before each update."""
    losses: list[torch.Tensor] = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model, {name: tensor.detach() for name, tensor in batch.items()})
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return losses


def assert_trains(
    model: torch.nn.Module, loss: Loss, batch: Mapping[str, torch.Tensor], tolerance: float = 2e-5
) -> None:
    """Parameters and losses are torch's after five steps, relative to the largest; a replay has the same bits."""
    reference = copy.deepcopy(model)
    expected = losses_of_torch(
        reference, torch.optim.SGD(reference.parameters(), lr=0.05), loss, batch, STEPS
    )
    step = compiled(model, loss, batch)
    start = step.snapshot()
    losses = [step.train_step(dict(batch)).clone() for _ in range(STEPS)]
    for got, wanted in zip(losses, expected, strict=True):
        assert_near(got, wanted, tolerance, "loss")
    for (name, got), wanted in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert_near(got.detach(), wanted.detach(), tolerance, name)
    trained = [p.detach().clone() for p in model.parameters()]
    step.restore(start)
    step.train_step(dict(batch))
    step.capture(dict(batch))
    step.replay(STEPS - 1)
    for (name, again), got in zip(model.named_parameters(), trained, strict=True):
        assert torch.equal(got, again), f"{name} differs between steps and a replay"


def assert_near(got: torch.Tensor, wanted: torch.Tensor, tolerance: float, name: str) -> None:
    """The largest difference is at most `tolerance` of the largest number."""
    scale = wanted.abs().max().item() + 1e-6
    torch.testing.assert_close(
        got, wanted, rtol=0, atol=tolerance * scale, msg=lambda text: f"{name}: {text}"
    )
