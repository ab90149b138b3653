"""A loss that is a method or an object calls other methods of its object: what those read is watched as well."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Weighted:
    """Equal by its fields, one of which has no hash."""

    options: dict[str, float]

    def __call__(self, model: Any, batch: Any) -> torch.Tensor:
        return model(batch["x"]).square().mean() * self.options["weight"]


def test_a_loss_that_has_no_hash_is_watched_like_another() -> None:
    loss, model = Weighted({"weight": 2.0}), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    batch = {"x": torch.ones(2, 3)}
    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    torch.testing.assert_close(step.train_step(batch), loss(model, batch).detach())
    loss.options["weight"] = 1.0
    with pytest.raises(GuardError, match=r"loss_fn\.options\['weight'\] was"):
        step.train_step(batch)
