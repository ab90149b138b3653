"""Parameters that a loop body freezes and unfreezes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from compiled_bodies import assert_near, batches, compiled, in_torch, made
from loop_bodies import World
from torch import nn


def assert_trains_as_torch(make: Callable[[], World], device: str) -> None:
    ours, theirs = (made(make, device, torch.float64) for _ in range(2))
    given = batches(ours, device, 4, torch.float64)
    step = compiled(ours, device, given[0])
    for batch in given:
        for got, wanted in zip(step(batch), in_torch(theirs, batch), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)
    assert_near(ours, theirs, 1e-9)


def test_parameters_frozen_between_forward_and_backward_get_no_gradient(device: str) -> None:
    """torch accumulates nothing in a leaf that requires no gradient any more."""

    def make() -> World:
        first, second = nn.Linear(4, 4), nn.Linear(4, 2)
        opts = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (first, second)]

        def body(batch: Any) -> Any:
            for opt in opts:
                opt.zero_grad()
            loss = (second(first(batch["x"])) - batch["t"]).square().mean()
            second.requires_grad_(False)
            loss.backward()
            second.requires_grad_(True)
            size = second(batch["x"]).square().mean()
            size.backward()
            for opt in opts:
                opt.step()
            return loss, size

        return World(body, [first, second], opts)

    assert_trains_as_torch(make, device)
