"""What an optimizer of its own step finds in its groups: parameters like torch's."""
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import mse
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError


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
