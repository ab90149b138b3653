"""`aicf_mlir.optim.Lion` as a class of torch: what it computes, what it refuses, and the loss of a closure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir.optim import Lion


def test_two_steps_by_hand() -> None:
    """Algorithm 2 of arXiv:2302.06675: the sign of one average moves the parameter, another one is kept."""
    p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimizer = Lion([p], lr=0.5, betas=(0.5, 0.75), weight_decay=0.25)
    p.grad = torch.tensor([2.0, -4.0, 0.0], dtype=torch.float64)
    optimizer.step()
    assert p.tolist() == [0.375, -1.25, 2.625]
    assert optimizer.state[p]["exp_avg"].tolist() == [0.5, -1.0, 0.0]
    p.grad = torch.tensor([-1.0, 1.0, 8.0], dtype=torch.float64)
    optimizer.step()  # 0.5 * 0.5 - 0.5 * 1 < 0, and 0 for the second: only the decay is left
    assert p.tolist() == [0.375 * 0.875 + 0.5, -1.25 * 0.875, 2.625 * 0.875 - 0.5]
    assert optimizer.state[p]["exp_avg"].tolist() == [0.125, -0.5, 2.0]


def test_what_it_maximizes() -> None:
    steps: list[torch.Tensor] = []
    for sign, maximize in ((1.0, False), (-1.0, True)):
        p = nn.Parameter(torch.ones(3))
        p.grad = sign * torch.tensor([1.0, -1.0, 0.0])
        Lion([p], lr=0.1, maximize=maximize).step()
        steps.append(p.detach())
    assert torch.equal(*steps)


def test_a_module_and_a_closure() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = Lion(model, lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) > optimizer.step(closure)
    assert optimizer.step() is None
    unused = nn.Parameter(torch.ones(1))
    other = Lion([unused])
    other.step()
    assert not other.state and unused.item() == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1.0}, "Invalid learning rate: -1.0"),
        ({"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ({"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
        ({"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Lion([nn.Parameter(torch.ones(1))], **options)
