"""A loss that is a method calls other methods of its object: what those read is watched as well."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aicf_mlir import GuardError, compile_train_step


class Parts:
    """Reached through two attributes and a method."""

    def __init__(self) -> None:
        self.power = 1.0

    def raised(self, y: torch.Tensor) -> torch.Tensor:
        return y * self.power


class Trainer:
    def __init__(self) -> None:
        self.alpha = 1.0
        self.parts = Parts()

    def weighted(self, y: torch.Tensor) -> torch.Tensor:
        return self.parts.raised(y * self.alpha)

    def loss(self, model: Any, batch: Any) -> torch.Tensor:
        return self.weighted(model(batch["x"])).square().mean()


@pytest.mark.parametrize("owner, name", [("", "alpha"), ("parts", "power")])
def test_what_a_method_of_a_method_reads_is_watched(owner: str, name: str) -> None:
    trainer, model = Trainer(), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = {"x": torch.ones(2, 3)}
    step = compile_train_step(model, optimizer, loss_fn=trainer.loss, example=batch, device="cpu")
    step.train_step(batch)
    setattr(getattr(trainer, owner) if owner else trainer, name, 2.0)
    with pytest.raises(GuardError, match=rf"{name} was 1\.0, now 2\.0"):
        step.train_step(batch)
