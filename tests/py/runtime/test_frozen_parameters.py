"""Parameters that a loop body freezes and unfreezes: what is computed while they are frozen has no gradient of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiled_bodies import assert_near, batches, compiled, in_torch, made
from loop_bodies import World
from torch import nn

Judged = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


def by_frozen(judged: Judged, judge: Callable[[], nn.Module]) -> Callable[[], World]:
    """A body that trains a judge, then a maker by what `judged` makes of the frozen judge, its result and the target."""

    def make() -> World:
        maker, D = nn.Linear(4, 2), judge()
        opt_m, opt_d = (torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (maker, D))

        def body(batch: Any) -> Any:
            made = maker(batch["x"])
            opt_d.zero_grad()
            on_real = (D(batch["t"]) - 1).square().mean() + D(made.detach()).square().mean()
            on_real.backward()
            opt_d.step()
            D.requires_grad_(False)
            loss = judged(D, made, batch["t"])
            opt_m.zero_grad()
            loss.backward()
            opt_m.step()
            D.requires_grad_(True)
            return on_real, loss

        return World(body, [maker, D], [opt_m, opt_d])

    return make


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


def usual(D: nn.Module, made: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    return (D(made) - 1).square().mean()


def matching(D: nn.Module, made: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    return (D(made) - D(real)).abs().mean()


def of_weights(D: Any, made: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    return (made @ D.weight.t()).square().mean() * D.weight.square().sum()


def quiet_view(D: Any, made: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        view = D.weight.view(4)
    return (D(made) * view.sum()).square().mean()


def in_autocast(D: nn.Module, made: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    with torch.autocast(made.device.type, torch.bfloat16, enabled=False):
        return (D(made) - D(real)).square().mean()


CASES: dict[str, tuple[Judged, Callable[[], nn.Module]]] = {
    "features are matched": (matching, linear),
    "of the weights alone": (of_weights, linear),
    "a view under no_grad": (quiet_view, linear),
    "in autocast": (in_autocast, linear),
    "a parametrization by spectral norm": (usual, lambda: nn.utils.parametrizations.spectral_norm(linear())),
    "a hook of spectral norm": (usual, lambda: nn.utils.spectral_norm(linear())),
}


def assert_trains_as_torch(make: Callable[[], World], device: str) -> None:
    ours, theirs = (made(make, device, torch.float64) for _ in range(2))
    given = batches(ours, device, 4, torch.float64)
    step = compiled(ours, device, given[0])
    for batch in given:
        for got, wanted in zip(step(batch), in_torch(theirs, batch), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)
    assert_near(ours, theirs, 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_what_frozen_parameters_give_has_no_gradient(name: str, device: str) -> None:
    assert_trains_as_torch(by_frozen(*CASES[name]), device)


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
