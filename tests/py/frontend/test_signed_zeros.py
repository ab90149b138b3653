"""0.0 and -0.0 are two numbers wherever a program names them, also for calls that differ in nothing else."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aicf_mlir import compile_train_step

Row = Callable[[Tensor, float], Tensor]

ROWS: dict[str, Row] = {
    "threshold": lambda x, zero: F.threshold(x, 0.5, zero),
    "clamp": lambda x, zero: x.clamp(max=zero),
    "where": lambda x, zero: torch.where(x > 0.5, x, zero),
    "masked_fill": lambda x, zero: x.masked_fill(x > 0.5, zero),
    "pad": lambda x, zero: F.pad(x, (0, 1), value=zero),
    "mul": lambda x, zero: x * zero,
    "full": lambda x, zero: torch.full((3,), zero) * x,
    "nan_to_num": lambda x, zero: torch.nan_to_num(x / 0.0 * 0.0, nan=zero),
}


class Signs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {
            f"{name} {zero}": torch.copysign(torch.ones(()), row(self.scale * x, zero))
            for name, row in ROWS.items()
            for zero in (0.0, -0.0, 0.0)
        }


def total(model: Signs, batch: dict[str, Tensor]) -> Tensor:
    """Each sign as a digit."""
    signs = torch.cat(list(model(batch["x"]).values()))
    return (signs * torch.arange(1.0, signs.numel() + 1) ** 2).sum() + 0.0 * model.scale.sum()


def test_each_call_keeps_its_own_zero() -> None:
    model, batch = Signs(), {"x": torch.tensor([0.2, 0.7, 1.0])}
    expected = total(model, batch).item()
    step = compile_train_step(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        device="cpu",
        example=batch,
        loss_fn=total,
    )
    assert step.train_step(batch).item() == expected
