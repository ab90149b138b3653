"""What a case gives: a model of a package, its optimizer, its loss and batches of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Batch], torch.Tensor]


@dataclass(frozen=True)
class Work:
    """One training as its user writes it: a loss for `compile_train_step`, or a `body` for `compile_step`."""

    model: nn.Module
    """All that is trained; several networks in one `nn.ModuleDict`."""
    batch: Callable[[], Batch]
    """Draws a batch; all of them have the same shapes."""
    optimizers: tuple[torch.optim.Optimizer, ...]
    loss: Loss | None = None
    body: Callable[[Batch], torch.Tensor] | None = None
    """The whole body of a loop; returns the loss that it has called `backward()` on last."""
    evaluates: bool = False
    """Whether the optimizer asks for the loss itself, several times in a step: its closure is the compiled evaluation."""
    draws: bool = False
    """Whether the step draws random numbers: AICF's are others than torch's, so that only two runs of AICF can be compared."""
    low: bool = False
    """Whether the step computes in 16 bits: moving a parameter by units of 32 bits does not show what rounding does there."""


Make = Callable[[], Work]
"""Builds everything anew, from torch's, NumPy's and Python's random numbers, which are seeded before."""


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def trained(
    model: nn.Module,
    batch: Callable[[], Batch],
    loss: Loss,
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = adamw,
    draws: bool = False,
) -> Work:
    """A model in training mode under one optimizer of all parameters that need gradients."""
    needed = [p for p in model.train().parameters() if p.requires_grad]
    return Work(model, batch, (optimizer(needed),), loss=loss, draws=draws)


def looped(
    networks: dict[str, nn.Module],
    batch: Callable[[], Batch],
    body: Callable[[Batch], torch.Tensor],
    *optimizers: torch.optim.Optimizer,
) -> Work:
    """The body of a loop over several networks and optimizers."""
    return Work(nn.ModuleDict(networks), batch, optimizers, body=body)
