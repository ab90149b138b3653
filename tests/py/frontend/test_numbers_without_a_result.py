"""Arithmetic of an optimizer for which Python has no result: an error before the step, as torch's loop has one."""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import mse
from written_optimizers import Written
from written_pair import Pair, batches

from aicf_mlir import compile_train_step
from aicf_mlir.errors import GuardError, TraceError

FORMS: dict[str, tuple[Callable[[dict[str, Any]], Any], float]] = {
    "quotient": (lambda g: g["lr"] / g["x"], 0),
    "of a constant": (lambda g: 0.01 / g["x"], 0.0),
    "root": (lambda g: math.sqrt(g["x"]) * g["lr"], -1.0),
    "logarithm": (lambda g: math.log(g["x"] + 1) * g["lr"], -1.0),
    "exponential": (lambda g: math.exp(g["x"]) * 1e-4, 1000.0),
    "power of 0": (lambda g: g["x"] ** -2 * g["lr"], 0.0),
    "complex power": (lambda g: g["x"] ** 0.5 * g["lr"], -1.0),
    "power of a constant": (lambda g: 10.0 ** g["x"] * 1e-3, 400.0),
    "in a minimum": (lambda g: min(g["lr"], 1 / g["x"]), 0.0),
}
"""What a step computes of its group, and a number for which Python has no result or a complex one."""


class Scaled(Written):
    """SGD with a rate that is computed."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, grad, _, group in self.entries():
            p.add_(grad, alpha=-FORMS[group["form"]][0](group))


@pytest.mark.parametrize("form", FORMS)
def test_it_is_an_error_and_loses_nothing(form: str) -> None:
    pair = Pair(lambda groups: Scaled(groups, lr=0.01, x=1.0, form=form), "cpu", double=True, one_layer=True)
    (batch,) = batches("cpu", 1, double=True)
    step = compile_train_step(pair.model, pair.ours, loss_fn=mse, example=batch, device="cpu")
    step.train_step(batch)
    pair.in_torch(batch)
    pair.set("x", FORMS[form][1])
    with pytest.raises((ArithmeticError, ValueError, RuntimeError)):
        pair.in_torch(batch)
    with pytest.raises(
        GuardError, match=r"Scaled\.step reads at .* raises \w+ now: .*; give it another value"
    ):
        step.train_step(batch)
    with pytest.raises(TraceError, match=r"(ZeroDivision|Overflow|Value)Error"):
        step.recompile()
    pair.set("x", 2.0)
    step.train_step(batch)
    pair.in_torch(batch)
    pair.assert_equal(1e-10)
