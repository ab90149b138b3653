"""An attribute without a dictionary that is filled at its first use, as pathlib fills the text of a path."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from aicf_mlir import GuardError, compile_train_step

BATCH = {"x": torch.linspace(-1, 1, 12).reshape(4, 3), "t": torch.zeros(4, 2)}


class Lazy:
    __slots__ = ("made",)

    made: float

    @property
    def value(self) -> float:
        """Made once."""
        if not hasattr(self, "made"):
            self.made = 2.0
        return self.made


def step_of(value: Callable[[], float]) -> Callable[[], torch.Tensor]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model,
        optimizer,
        device="cpu",
        example=BATCH,
        loss_fn=lambda m, b: F.mse_loss(m(b["x"]) * value(), b["t"]),
    )
    return lambda: step.train_step(BATCH)


def test_it_is_filled_before_or_after_the_first_step() -> None:
    lazy = Lazy()
    step = step_of(lambda: lazy.value)
    first = step().item()
    assert step().item() < first
    assert lazy.value == 2.0
    assert step().item() < first
    lazy.made = 3.0
    with pytest.raises(GuardError, match=r"lazy\.made was .*, now 3\.0"):
        step()


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "file"
    step = step_of(lambda: float(len(os.fspath(path)) > 0))
    first = step().item()
    assert str(path)
    assert step().item() < first
