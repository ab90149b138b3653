"""A mean is a sum over a count: that of ones is one, and its gradient is torch's, bit for bit.

On the CPU torch divides as well. On CUDA it multiplies by the count's reciprocal: its mean of 41 ones is 0.99999994.
"""

from __future__ import annotations

import pytest
import torch
from oracle import assert_same_bits
from torch import nn

from aicf_mlir import compile_train_step

COUNTS = (41, 47, 49, 82, 97)
"""Of which the reciprocal, rounded to float32 or float64 and taken so many times, is not one."""
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
LOSSES = {
    "of all": lambda x: x.mean(),
    "of columns": lambda x: x.mean(0).sum(),
    "of rows": lambda x: x.t().mean(1).sum(),
    "of a function": lambda x: (x * x).mean(),
}


class Weights(nn.Module):
    def __init__(self, count: int, dtype: torch.dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, 2, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_of_ones(name: str, dtype: torch.dtype, device: str) -> None:
    for count in COUNTS:
        model = Weights(count, dtype).to(device)
        batch = {"x": torch.ones(count, 2, dtype=dtype, device=device)}
        loss = LOSSES[name](model(batch["x"]))
        loss.backward()
        assert model.weight.grad is not None
        gradient = model.weight.grad.clone()
        exact = torch.full_like(loss, 2.0 if name in ("of columns", "of rows") else 1.0).detach()
        if device == "cpu":
            assert_same_bits({"loss": loss.detach()}, {"loss": exact})

        with torch.no_grad():
            model.weight.grad = None
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        step = compile_train_step(
            model,
            optimizer,
            loss_fn=lambda m, b: LOSSES[name](m(b["x"])),
            example=batch,
            device=device,
            keep_gradients=True,
        )
        assert_same_bits(
            {"loss": step.train_step(batch), **step.gradients},
            {"loss": exact, "weight": gradient},
        )
