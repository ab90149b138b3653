"""A model with an optimizer of two param groups and a schedule, trained with limits on its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from models import Batch, mlp, mse, regression, to_device, values

from aicf_mlir import compile_train_step
from aicf_mlir.optim import Lion
from aicf_mlir.step.compiled_step import CompiledTrainStep

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
    "lion": lambda p: Lion(p, lr=1e-3, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.5),
}


def batches(
    count: int, dtype: torch.dtype = torch.float32, device: str = "cpu", rows: int = 8
) -> list[Batch]:
    return [to_device(regression(rows, seed=number, dtype=dtype), device) for number in range(count)]


class Training:
    """A model with its optimizer in two param groups and a schedule of its learning rate: in torch, or compiled."""

    def __init__(
        self, optimizer: str, dtype: torch.dtype = torch.float32, device: str = "cpu", **options: Any
    ):
        self.model = mlp(8, 17, 8).to(dtype).to(device)
        weights, biases = ([p for p in self.model.parameters() if p.dim() == dim] for dim in (2, 1))
        self.groups = [weights, biases]
        self.optimizer = OPTIMIZERS[optimizer]([{"params": weights}, {"params": biases}])
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 10, 0.5)
        self.device, self.options = device, options
        self.norms: list[torch.Tensor] = []

    def compiled(self, example: Batch | list[Batch]) -> CompiledTrainStep:
        return compile_train_step(
            self.model, self.optimizer, loss_fn=mse, example=example, device=self.device, **self.options
        )

    def in_torch(self, batch: Batch, clip: Callable[[Training], object]) -> None:
        self.optimizer.zero_grad()
        mse(self.model, batch).backward()
        clip(self)
        self.optimizer.step()
        self.schedule.step()

    def values(self) -> dict[str, torch.Tensor]:
        norms = {f"norm {number}": norm.detach().cpu().clone() for number, norm in enumerate(self.norms)}
        return {**values(self.model, self.optimizer), **norms}
