"""Optimizers that write to tensors in every way that torch has: each write is a value, with torch's numbers."""
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import mse
from oracle import same_bits
from torch import Tensor
from written_optimizers import RIGHT, Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.frontend.traced_optimizer import graph as module

_torch: Any = torch

Write = Callable[[Tensor, Tensor, Any], None]
"""Of a parameter, its gradient and its state."""


def gradient_in_place(p: Tensor, grad: Tensor, state: Any) -> None:
    grad.add_(p, alpha=0.1).mul_(0.5)
    p.sub_(grad, alpha=0.01)


def detached(p: Tensor, grad: Tensor, state: Any) -> None:
    same = p.detach()
    same.mul_(0.99)
    p.data.add_(grad, alpha=-0.01)
    p.add_(same.detach(), alpha=-0.001)


def of_another_type(p: Tensor, grad: Tensor, state: Any) -> None:
    moves = grad.abs().clone()
    moves.gt_(0.01)
    p.sub_(moves * grad.sign(), alpha=0.01)
    p.add_(grad.to(torch.float32), alpha=-0.01)


def read_before_and_behind(p: Tensor, grad: Tensor, state: Any) -> None:
    old = p * 1.0
    p.mul_(0.5)
    half = p + 0.0
    p.add_(old).sub_(half)
    p.addcmul_(grad, grad, value=-0.01)


def one_state_two_names(p: Tensor, grad: Tensor, state: Any) -> None:
    kept = state.setdefault("kept", torch.zeros_like(p))
    alias = kept
    alias.mul_(0.9).add_(grad)
    p.sub_(kept, alpha=0.01)


def copied(p: Tensor, grad: Tensor, state: Any) -> None:
    kept = state.setdefault("kept", torch.zeros_like(p))
    kept.copy_(0.9 * kept + grad)
    p.copy_(p - 0.01 * kept)


def filled(p: Tensor, grad: Tensor, state: Any) -> None:
    scratch = torch.empty_like(p)
    scratch.fill_(0.5)
    other = torch.ones_like(p)
    other.zero_()
    p.sub_((scratch + other) * grad, alpha=0.01)


def view_written(p: Tensor, grad: Tensor, state: Any) -> None:
    p.view(-1).sub_(grad.reshape(-1), alpha=0.01)
    p.mul_(0.999)


def alias_that_no_schema_tells(p: Tensor, grad: Tensor, state: Any) -> None:
    same = torch.atleast_1d(p.type_as(p))
    same.mul_(0.99)
    p.sub_(grad, alpha=0.01)
    same.add_(grad, alpha=0.001)


def base_written_behind_its_view(p: Tensor, grad: Tensor, state: Any) -> None:
    first = p.flatten()[:1]
    p.sub_(grad, alpha=0.01)
    p.mul_(1 + 0.01 * torch.tanh(first.sum()))


def out_argument(p: Tensor, grad: Tensor, state: Any) -> None:
    scratch = torch.empty_like(p)
    torch.mul(grad, 0.01, out=scratch)
    p.sub_(scratch)


def masked(p: Tensor, grad: Tensor, state: Any) -> None:
    small = grad.clone()
    small.masked_fill_(grad.abs() < 0.01, 0.0)
    p.sub_(small, alpha=0.01)


def many_at_once(p: Tensor, grad: Tensor, state: Any) -> None:
    _torch._foreach_mul_([p], 0.999)
    _torch._foreach_sub_([p], [grad * 0.01])


WALKED = (gradient_in_place, detached, of_another_type, read_before_and_behind, one_state_two_names, masked)
LEFT_TO_TORCH = (view_written, alias_that_no_schema_tells, base_written_behind_its_view, out_argument)
EITHER = (copied, filled, many_at_once)


def optimizer(write: Write) -> type[Written]:
    class Writes(Written):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for p, grad, state, _ in self.entries():
                write(p, grad, state)

    return Writes


@pytest.mark.parametrize("write", (*WALKED, *LEFT_TO_TORCH, *EITHER), ids=lambda write: write.__name__)
def test_writes_are_those_of_torch(write: Write, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bool] = []

    def noted(graph: Any) -> bool:
        answers.append(walk(graph))
        return answers[-1]

    walk = module.without_writes
    monkeypatch.setattr(module, "without_writes", noted)
    pair = Pair(lambda params: optimizer(write)(params), device, double=True)
    given = batches(device, 6, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    assert write in EITHER or set(answers) == {write in WALKED}
    for batch in given:
        step.train_step(batch)
        pair.in_torch(batch)
        pair.assert_equal(1e-7 if write is of_another_type else 1e-10)


@pytest.mark.parametrize("name", RIGHT)
def test_the_walk_and_torch_make_the_same_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[list[Tensor]] = []
    for walks in (True, False):
        with monkeypatch.context() as patched:
            if not walks:
                patched.setattr(module, "without_writes", lambda graph: False)
            pair = Pair(RIGHT[name], "cpu")
            given = batches("cpu", 3)
            step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device="cpu")
        for batch in given:
            step.train_step(batch)
        states = [value for p in pair.model.parameters() for value in pair.ours.state[p].values()]
        ends.append([torch.as_tensor(t).detach().clone() for t in (*pair.model.parameters(), *states)])
    assert all(same_bits(one, other) for one, other in zip(*ends, strict=True))
