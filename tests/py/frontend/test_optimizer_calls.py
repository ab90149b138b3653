"""Calls of an optimizer that a trace takes in another form, each beside torch while the numbers of its group change."""
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from models import mse
from torch import Tensor
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import GuardError

_torch: Any = torch
Update = Callable[[dict[str, Any], Tensor, Tensor, Any], Tensor]


def foreach_pow(g: dict[str, Any], p: Tensor, m: Tensor, n: Any) -> Tensor:
    made = [m.abs()]
    _torch._foreach_pow_(made, g["x"])
    return made[0]


def foreach_between(g: dict[str, Any], p: Tensor, m: Tensor, n: Any) -> Tensor:
    made = [m.clone()]
    _torch._foreach_maximum_(made, -g["x"] * 0.01)
    _torch._foreach_minimum_(made, 0.005)
    return made[0]


LIVE: dict[str, Update] = {
    "foreach pow": foreach_pow,
    "foreach maximum of a number": foreach_between,
    "foreach minimum of tensors": lambda g, p, m, n: _torch._foreach_minimum([m], [p * g["x"]])[0],
    "pow in place": lambda g, p, m, n: m.abs().pow_(g["x"]),
    "power of a number": lambda g, p, m, n: g["x"] ** m,
    "power of a count": lambda g, p, m, n: torch.pow(1 / (n + 1), m.abs()) * m,
    "full": lambda g, p, m, n: torch.full((), g["x"], dtype=p.dtype) * m,
    "full of a count": lambda g, p, m, n: torch.full(p.shape, g["x"] / n, dtype=p.dtype) * m,
    "full in f32": lambda g, p, m, n: torch.full((8,), g["x"]) * m,
    "as_tensor": lambda g, p, m, n: torch.as_tensor(g["x"] / n, dtype=torch.float64) * m,
    "new_tensor": lambda g, p, m, n: m.new_tensor(g["x"] * n) * m,
    "whole quotient of a count": lambda g, p, m, n: m * (n // 3) * g["x"],
    "whole quotient": lambda g, p, m, n: m * (1 // g["x"]),
    "floor": lambda g, p, m, n: m * math.floor(n / 2),
    "ceil": lambda g, p, m, n: m * math.ceil(g["x"] * 15),
    "round": lambda g, p, m, n: m * round(n / 2) * round(g["x"] * 25),
    "deepcopy": lambda g, p, m, n: copy.deepcopy(p.data) * g["x"],
}
"""What an optimizer subtracts, from its group, a parameter, a momentum and a count; a new `x` is followed."""
GUARDED: dict[str, Update] = {
    "cosine similarity": lambda g, p, m, n: (
        F.cosine_similarity(p.view(1, -1), m.view(1, -1), eps=g["x"]).abs_() * p
    ),
    "softshrink": lambda g, p, m, n: F.softshrink(m, g["x"] * 0.01),
    "leaky_relu": lambda g, p, m, n: F.leaky_relu(m, g["x"]),
}
"""A new `x` is a `GuardError`: torch has no such function of a number that changes."""


class Updates(Written):
    """Momentum and a count for each parameter; `update` is what it subtracts."""

    update: Update

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, state, group in self.entries():
            if not state:
                state["step"], state["m"] = 0, torch.zeros_like(p)
            state["step"] += 1
            state["m"].mul_(0.9).add_(grad, alpha=0.1)
            p.sub_(type(self).update(group, p, state["m"], state["step"]), alpha=group["lr"])


def made(update: Update) -> Any:
    kind = type("Updates", (Updates,), {"update": staticmethod(update)})
    return lambda groups: kind(groups, lr=0.01, x=0.1)


@pytest.mark.parametrize("name", LIVE)
def test_a_number_that_changes_is_followed(name: str) -> None:
    pair = Pair(made(LIVE[name]), "cpu", double=True, one_layer=True)
    given = batches("cpu", 4, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device="cpu")
    for number, batch in enumerate(given):
        if number == 2:
            pair.set("x", 0.3)
        step.train_step(batch)
        pair.in_torch(batch)
        pair.assert_equal(1e-10)


@pytest.mark.parametrize("name", GUARDED)
def test_a_number_that_is_compiled_in_is_guarded(name: str) -> None:
    pair = Pair(made(GUARDED[name]), "cpu", double=True, one_layer=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    pair.in_torch(batch)
    pair.set("x", 0.3)
    with pytest.raises(GuardError, match=r"call recompile\(\)"):
        step.train_step(batch)
    step.recompile()
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)


class StopsAtZero(Written):
    """Prodigy and D-Adaptation: nothing moves while all gradients are 0; the count does."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        total = torch.stack([grad.abs().sum() for _, grad, _, _ in self.entries()]).sum()
        for _, _, state, _ in self.entries():
            state["step"] = state.get("step", 0) + 1
        if total == 0:
            return
        for p, grad, state, group in self.entries():
            p.sub_(grad / total, alpha=group["lr"] * state["step"])


class Clips(Written):
    """Each gradient by its own norm, where that is too large."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            if grad.norm() > group["limit"]:
                grad = grad * (group["limit"] / grad.norm())
            p.sub_(grad, alpha=group["lr"])


@pytest.mark.parametrize(
    "config",
    [lambda ps: StopsAtZero(ps, lr=0.1), lambda ps: Clips(ps, lr=0.1, limit=0.5)],  # pyright: ignore[reportUnknownLambdaType]
    ids=["stops at zero", "clips"],
)
def test_a_decision_by_the_value_of_a_tensor(config: Any, device: str) -> None:
    pair = Pair(config, device, double=True)
    given = batches(device, 4, double=True)
    for batch, factor in zip(given, (1.0, 0.0, 1e-3, 30.0), strict=True):
        batch["x"] *= factor
        batch["t"] *= factor
    with torch.no_grad():
        for model in (pair.model, pair.other):
            for name, p in model.named_parameters():
                if name.endswith("bias"):
                    p.zero_()  # so that a batch of zeros has no gradient
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=given[0], device=device)
    for batch in (given[1], given[0], given[2], given[3]):
        step.train_step(batch)
        pair.in_torch(batch)
        pair.assert_equal(1e-10)
