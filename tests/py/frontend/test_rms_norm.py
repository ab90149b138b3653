"""nn.RMSNorm beside torch, where its eps decides: small activations, without an eps of the user's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models import Batch
from torch import nn

from aicf_mlir import compile_train_step


def total(model: Any, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]).float() * batch["g"]).sum()


@pytest.mark.parametrize("size", [1.0, 0.05, 3e-4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_its_eps_is_that_of_the_type_it_is_computed_in(dtype: torch.dtype, size: float, device: str) -> None:
    """float32 for half precision: an eps of 0.0078, that of a bfloat16, is more than the squares of most activations."""
    torch.manual_seed(1)
    batch = {"x": torch.randn(16, 32).mul(size).to(device, dtype), "g": torch.randn(16, 32).to(device)}
    linear = nn.Linear(32, 32, bias=False)
    model = nn.Sequential(linear, nn.RMSNorm(32)).to(device, dtype)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(32))
    expected = total(model, batch).detach()
    grads = torch.autograd.grad(total(model, batch), [*model.parameters()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    step = compile_train_step(model, optimizer, loss_fn=total, example=batch, device=device)
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(step.train_step(batch), expected, rtol=2e-2, atol=0.2)
    for parameter, grad in zip(model.parameters(), grads, strict=True):
        ours: torch.Tensor = optimizer.state[parameter]["momentum_buffer"]
        scale = grad.abs().max()
        torch.testing.assert_close(ours / scale, grad / scale, **loose)
