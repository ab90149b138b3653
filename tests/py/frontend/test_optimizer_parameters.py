"""What an optimizer of its own step finds in its groups: parameters like torch's."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from models import mse
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError

_torch: Any = torch


class Selecting(Written):
    """Passes over frozen parameters, and decays what is a parameter and a leaf."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            if not p.requires_grad:
                continue
            if isinstance(p, torch.nn.Parameter):
                p.mul_(1 - group["lr"])
            if p.is_leaf and not grad.requires_grad and grad.grad_fn is None:
                p.mul_(1 - group["lr"])
            p.sub_(group["lr"] * grad)


class Curved(Written):
    """Takes second derivatives of the gradients, which carry none."""

    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            if p.requires_grad:
                (curved,) = torch.autograd.grad(grad.sum(), p)
                p.data.sub_(group["lr"] * curved)


def test_a_parameter_is_a_leaf_with_a_gradient(device: str) -> None:
    pair, given = Pair(lambda ps: Selecting(ps, lr=0.1), device, double=True), batches(device, 4, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for batch in given:
        step.train_step(batch)
        pair.in_torch(batch)
    pair.assert_equal(1e-12)


def test_what_torch_refuses_is_refused() -> None:
    pair, (batch,) = Pair(lambda ps: Curved(ps, lr=0.1), "cpu"), batches("cpu", 1)
    with pytest.raises(TraceError, match=r"test_optimizer_parameters.py:\d+: .*does not require grad"):
        compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    with pytest.raises(RuntimeError, match="does not require grad"):
        pair.in_torch(batch)


class Counting(Written):
    """Divides by the parameters of a group, and looks up a state of each before it passes over those without a gradient."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for place, p in enumerate(group["params"]):
                state = self.state[p]
                if p.grad is None or not p.requires_grad or p.numel() == 0:
                    continue
                state["count"] = state.get("count", 0) + 1
                p.sub_(p.grad, alpha=group["lr"] * (place + 1) / len(group["params"]))


class DecaysAll(Written):
    """Decays a parameter without a gradient too."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - group["lr"])
                if p.grad is not None:
                    p.sub_(p.grad, alpha=group["lr"])


class GivesOne(Written):
    """Gives a parameter without a gradient one of zeros, as Muon's own code does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    p.grad = torch.zeros_like(p)
                p.mul_(0.9).sub_(p.grad, alpha=group["lr"])


class Reads(Written):
    """Divides by the norm of all parameters."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            norm = torch.stack(_torch._foreach_norm(group["params"])).norm()
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad / norm, alpha=group["lr"])


class Partly(torch.nn.Module):
    """A model of which some parameters have no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.used = torch.nn.Linear(2, 2), torch.nn.Linear(8, 8)
        self.frozen = torch.nn.Linear(3, 1).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_parameters_without_a_gradient_stand_in_their_places() -> None:
    torch.manual_seed(0)
    ours = Partly()
    theirs = copy.deepcopy(ours)
    optimizer, eager = (Counting(each.parameters(), lr=0.1) for each in (ours, theirs))
    (batch,) = batches("cpu", 1)
    step = compile_train_step(ours, optimizer, loss_fn=mse, example=batch, device="cpu")
    for _ in range(2):
        step.train_step(batch)
        eager.zero_grad()
        mse(theirs, batch).backward()
        eager.step()
    for got, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("kind", [DecaysAll, GivesOne, Reads])
def test_a_use_of_a_parameter_without_a_gradient_is_refused(kind: Any) -> None:
    model, (batch,) = Partly(), batches("cpu", 1)
    optimizer = kind(model.parameters(), lr=0.1)
    with pytest.raises(
        TraceError, match=r"parameters.py:\d+: .*step uses parameter 0 of param_groups\[0\] \(`.*pass over it"
    ):
        compile_train_step(model, optimizer, loss_fn=mse, example=batch, device="cpu")
