"""Running products, extremes and log-sums of rows, and rounding to few levels, trained beside torch."""

from __future__ import annotations

import pytest
import torch
from trained_ops import Function, assert_op_trains

from aicf_mlir import trace

BATCH = {
    "beside": torch.randn(5, 8, generator=torch.Generator().manual_seed(3)),
    "scales": torch.linspace(0.1, 0.2, 8),
}

RUNNING: dict[str, Function] = {
    "cumprod": lambda x, b: (x + 1).cumprod(1),
    "cumprod down": lambda x, b: x.cumprod(0),
    "cumprod of a zero": lambda x, b: (x - x.detach() * (torch.arange(8) == 3)).cumprod(1),
    "cumprod of zeros": lambda x, b: (x - x.detach() * (torch.arange(8) % 3 == 1)).cumprod(1),
    "cumprod of one": lambda x, b: x[:, :1].cumprod(1),
    "cumsum of one": lambda x, b: x[:, :1].cumsum(1),
    "cumsum of one, of 16 bits": lambda x, b: x[:1].bfloat16().cumsum(0).float(),
    "logcumsumexp of one": lambda x, b: x[:1].logcumsumexp(0),
    "cumprod of integers": lambda x, b: x * (b["beside"] > -1).long().cumprod(1),
    "cummax": lambda x, b: x.cummax(1)[0],
    "cummax of ties": lambda x, b: x[:, :1].expand(-1, 8).cummax(1)[0] + x.cummax(0)[0],
    "cummax of integers": lambda x, b: x * (b["beside"] * 2).long().cummax(1)[0],
    "cummin": lambda x, b: x.cummin(0)[0],
    "indices": lambda x, b: x * x.cummax(1)[1] + x.cummin(0).indices,
    "indices of ties": lambda x, b: x * b["beside"].sign().cummax(1)[1],
    "logcumsumexp": lambda x, b: x.logcumsumexp(1),
    "logcumsumexp down": lambda x, b: (x * 20).logcumsumexp(0),
    "logcumsumexp behind nothing": lambda x, b: torch.where(torch.arange(8) == 2, -torch.inf, x).logcumsumexp(1),
}  # fmt: skip

QUANTIZED: dict[str, Function] = {
    "of a tensor": lambda x, b: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -5, 8),
    "by tensors": lambda x, b: torch.fake_quantize_per_tensor_affine(
        x, b["scales"][2].float(), torch.tensor(3, dtype=torch.int32), -5, 8
    ),
    "of channels": lambda x, b: torch.fake_quantize_per_channel_affine(
        x, b["scales"].float(), torch.arange(8, dtype=torch.int32) - 3, 1, -5, 8
    ),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_results_train_as_torch(name: str) -> None:
    assert_op_trains(RUNNING[name], BATCH)


@pytest.mark.parametrize("name", ("cumprod", "cummax", "logcumsumexp"))
def test_in_half_precision(name: str) -> None:
    assert_op_trains(RUNNING[name], BATCH, torch.bfloat16)


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_training_as_torch(name: str) -> None:
    assert_op_trains(QUANTIZED[name], BATCH, torch.float32, torch.float64)


def test_a_running_result_of_one_element_is_no_launch() -> None:
    def loss(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        x = model(batch["beside"])[:1]
        return (x.cumsum(0) + x.cumprod(0) + x.logcumsumexp(0)).sum()

    text = str(trace(torch.nn.Linear(8, 3), loss, {"beside": BATCH["beside"]}).module)
    assert "nn.scan" not in text and "nn.cumsum" not in text
