"""Activations of torch.nn, as layers and as functions with parameters of their own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from user_models.case import Case, apply, behind_linear, functions

LAYERS = (
    *(
        "ReLU",
        "ReLU6",
        "LeakyReLU",
        "PReLU",
        "ELU",
        "SELU",
        "CELU",
        "GELU",
        "SiLU",
        "Mish",
        "Tanh",
        "Sigmoid",
    ),
    *(
        "LogSigmoid",
        "Hardtanh",
        "Hardswish",
        "Hardsigmoid",
        "Hardshrink",
        "Softshrink",
        "Softplus",
        "Softsign",
    ),
    *("Tanhshrink", "GLU"),
)

CASES: dict[str, Case] = {
    **{name: behind_linear(apply, getattr(nn, name)) for name in LAYERS},
    "PReLU by channel": behind_linear(apply, lambda: nn.PReLU(8, init=0.1)),
    "Threshold": behind_linear(apply, lambda: nn.Threshold(0.2, -1.0)),
    "Softmin": behind_linear(apply, lambda: nn.Softmin(-1)),
    **functions(
        {
            "gelu of tanh": lambda h: F.gelu(h, approximate="tanh"),
            "quick gelu": lambda h: h * torch.sigmoid(1.702 * h),
            "squared relu": lambda h: F.relu(h).square(),
            "steep softplus": lambda h: F.softplus(h, beta=3.0, threshold=2.0),
            "swish of its own slope": lambda h: h * torch.sigmoid(h * h.abs().mean()),
            "snake": lambda h: h + torch.sin(3 * h).square() / 3,
            "softmax at a temperature": lambda h: F.softmax(h / 0.7, dim=0),
            "capped": lambda h: 5 * torch.tanh(h / 5),
        }
    ),
}
