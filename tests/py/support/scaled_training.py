"""Models trained under a loss scale, in torch with its GradScaler or compiled, and batches that overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from models import Batch, regression, to_device, to_dtype, values
from torch import nn

from aicf_mlir import LossScale, compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

STEPS = 40
ASKED = LossScale(1024.0, 1.5, 0.3, 3)

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-3, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-3, momentum=0.5),
}


class Scaler(torch.amp.GradScaler):
    """torch's, which also takes gradients of f16."""

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> Any:
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


def mse_of(model: Any, batch: Batch) -> torch.Tensor:
    """In f32, whatever the model is of."""
    return (model(batch["x"]).float() - batch["t"].float()).square().mean()


def batches(dtype: torch.dtype = torch.float32, device: str = "cpu", count: int = STEPS) -> list[Batch]:
    """The first, and every seventh behind it, overflows."""
    made: list[Batch] = []
    for number in range(count):
        batch = to_dtype(regression(8, seed=number), dtype)
        if number % 7 == 0:
            batch["x"][0, 0] = (math.inf, 6e4, math.nan)[number % 3]
            batch["t"][0, 0] = math.inf
        made.append(to_device(batch, device))
    return made


class Own(torch.optim.Optimizer):
    """An optimizer that AICF has no rule for: it is traced."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["mean"] = 0, torch.zeros_like(p)
                state["step"] += 1
                state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.sub_(state["mean"] / (1 - 0.9 ** state["step"]), alpha=group["lr"])


class Side:
    """A model that is trained: in torch, or compiled."""

    def __init__(
        self,
        optimizer: str | Callable[[Any], torch.optim.Optimizer],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        asked: LossScale = ASKED,
    ):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 17), nn.Tanh(), nn.Linear(17, 8)).to(dtype).to(device)
        self.optimizer = (OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer)(
            self.model.parameters()
        )
        self.device, self.asked = device, asked
        self.scaler = Scaler(
            "cpu", asked.init_scale, asked.growth_factor, asked.backoff_factor, asked.growth_interval
        )
        self.scales: list[float] = []

    def compiled(self, **options: Any) -> CompiledTrainStep:
        dtype = next(self.model.parameters()).dtype
        given = {"example": to_dtype(regression(8), dtype), "loss_scale": self.asked, **options}
        return compile_train_step(self.model, self.optimizer, loss_fn=mse_of, device=self.device, **given)

    def in_torch(self, parts: Sequence[Batch], limit: float | None = None) -> None:
        self.optimizer.zero_grad()
        for batch in parts:
            self.scaler.scale(mse_of(self.model, batch) / len(parts)).backward()
        self.scaler.unscale_(self.optimizer)
        if limit is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scales.append(self.scaler.get_scale())

    def values(self) -> dict[str, torch.Tensor]:
        return values(self.model, self.optimizer)
