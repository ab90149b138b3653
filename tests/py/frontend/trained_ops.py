"""One op between two trained parameters, beside torch captured and replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from beside_torch import assert_trains

Batch = Mapping[str, torch.Tensor]
Function = Callable[[Any, Any], torch.Tensor]

ROWS, COLUMNS = 5, 8
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 5e-2}
"""Of the largest number, after five steps."""


class OfOp(torch.nn.Module):
    """`function` of a bounded parameter and the batch, times another parameter."""

    def __init__(self, function: Function, dtype: torch.dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(ROWS, COLUMNS, dtype=dtype))
        self.scale = torch.nn.Parameter(torch.tensor(1.5, dtype=dtype))
        self.function = function

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.function(self.weight.tanh(), batch) * self.scale


def weighed(model: Any, batch: Batch) -> torch.Tensor:
    """Another weight for each element, so that no two may change places."""
    y = model(batch)
    weights = torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)
    return (y * weights).square().mean() / 20


def assert_op_trains(function: Function, batch: Batch, *dtypes: torch.dtype) -> None:
    """Five steps in each type, and by a replay; by default in float64 alone."""
    for dtype in dtypes or (torch.float64,):
        torch.manual_seed(1)
        cast = {name: each.to(dtype) if each.is_floating_point() else each for name, each in batch.items()}
        assert_trains(OfOp(function, dtype), weighed, cast, TOLERANCES[dtype])
