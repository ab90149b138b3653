"""`step.check` of parameters in f16: where torch's own update is infinite, and where it is the one that a compiled step makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import compile_train_step

D = 8


def step_of(optimizer_of: Callable[[Any], torch.optim.Optimizer]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Gradients so small that the squares of some are 0 in f16."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 16), nn.Tanh(), nn.Linear(16, 4)).half()
    batch = {"x": torch.randn(4, D).half()}
    step = compile_train_step(
        model,
        optimizer_of(model.parameters()),
        loss_fn=lambda model, batch: model(batch["x"]).float().square().mean(),
        example=batch,
        device="cpu",
    )
    return step, batch


PARAMETERS = {f"parameter '{name}'" for name in ("0.weight", "0.bias", "2.weight", "2.bias")}


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_an_infinite_update_of_torch_is_said(kind: Any) -> None:
    """Its eps of 1e-8 is 0 in f16, beside a second moment that is 0 too."""
    step, batch = step_of(kind)
    found = step.check(batch)
    assert {row.name for row in found.differences} == PARAMETERS, str(found)
    assert {row.why for row in found.differences} == {"NaN or infinity at other places"}
    step.train_step(batch)
    assert all(bool(p.isfinite().all()) for p in step._request.model.parameters())


FINITE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, fused=True),
    "Adam with a larger eps": lambda parameters: torch.optim.Adam(parameters, eps=1e-4, fused=True),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, fused=True),
    "Adadelta, whose states are below the normal numbers": torch.optim.Adadelta,
    "RAdam": torch.optim.RAdam,
}


@pytest.mark.parametrize("name", FINITE)
def test_a_finite_update_is_equal(name: str) -> None:
    step, batch = step_of(FINITE[name])
    found = step.check(batch, steps=3)
    assert found.equal, str(found)
