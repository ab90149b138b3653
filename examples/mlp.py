"""Multi-layer perceptrons as the tools take them: `aicf-trace examples/mlp.py:mlp`, or `:classifier`."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from aicf_mlir.nn import GELU, Linear, ReLU, Sequential
from aicf_mlir.optim import Adam, AdamW


def mlp() -> dict[str, Any]:
    """Two layers of width 256 under Adam; the loss is the default, mean squared error against t."""
    torch.manual_seed(0)
    model = Sequential(Linear(256, 256), ReLU(), Linear(256, 256))
    return {
        "model": model,
        "optimizer": Adam(model, lr=1e-3),
        "batch": {"x": torch.randn(64, 256), "t": torch.randn(64, 256)},
    }


def classifier() -> dict[str, Any]:
    """Three layers under AdamW, with cross entropy against class indices; biases are not decayed."""
    torch.manual_seed(0)
    model = Sequential(Linear(64, 128), GELU(), Linear(128, 64), ReLU(), Linear(64, 10))
    weights = [p for p in model.parameters() if p.dim() > 1]
    biases = [p for p in model.parameters() if p.dim() == 1]
    return {
        "model": model,
        "optimizer": AdamW([{"params": weights}, {"params": biases, "weight_decay": 0.0}], lr=2e-3),
        "loss_fn": lambda model, batch: cross_entropy(model(batch["image"]), batch["label"]),
        "batch": {"image": torch.randn(32, 64), "label": torch.randint(10, (32,))},
    }
