"""The same small regression with each optimizer, and in each precision, that a user may choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from user_models.case import Batch, Case, Loss, descent, mlp

Make = Callable[[nn.Module], torch.optim.Optimizer]


def batch() -> Batch:
    """Inputs and targets."""
    return {"x": torch.randn(6, 8), "t": torch.randn(6, 3)}


def mean_square(model: Any, batch: Any) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def under_autocast(model: Any, batch: Any) -> torch.Tensor:
    """Products in bfloat16."""
    with torch.autocast(batch["x"].device.type, torch.bfloat16):
        y = model(batch["x"])
    return F.mse_loss(y.float(), batch["t"])


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Weights that decay, and biases that do not and learn faster."""
    weights, biases = ([p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False))
    return [{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr": 0.03}]


def by(
    make: Make, tolerance: float = 2e-5, dtype: torch.dtype = torch.float32, loss: Loss = mean_square
) -> Case:
    """An MLP trained in `dtype`."""
    return Case(
        lambda: mlp(8, 9, 3, act=nn.Tanh).to(dtype),
        lambda: {key: value.to(dtype) for key, value in batch().items()},
        loss,
        make,
        tolerance,
    )


def of(name: str, **options: Any) -> Make:
    """An optimizer of torch over all parameters."""
    make: Any = getattr(torch.optim, name)
    return lambda model: make(model.parameters(), **options)


CASES: dict[str, Case] = {
    "SGD": by(of("SGD", lr=0.1)),
    "SGD, Nesterov": by(of("SGD", lr=0.05, momentum=0.9, nesterov=True)),
    "SGD, decay and dampening": by(of("SGD", lr=0.05, momentum=0.8, dampening=0.2, weight_decay=0.01)),
    "SGD, maximize": by(of("SGD", lr=0.01, maximize=True)),
    "Adam": by(of("Adam", lr=0.01)),
    "Adam, amsgrad and decay": by(of("Adam", lr=0.01, amsgrad=True, weight_decay=0.02)),
    "AdamW": by(of("AdamW", lr=0.01, betas=(0.8, 0.95), eps=1e-6)),
    "AdamW, fused": by(of("AdamW", lr=0.01, fused=True)),
    "AdamW, groups": by(lambda model: torch.optim.AdamW(groups(model), lr=0.01)),
    "Adam, the rate a tensor": by(of("Adam", lr=torch.tensor(0.01))),
    "bfloat16": by(descent, 2e-2, torch.bfloat16),
    "float16": by(descent, 4e-3, torch.float16),
    "float64": by(of("Adam", lr=0.01), 1e-9, torch.float64),
    "autocast": by(descent, 2e-2, loss=under_autocast),
}
