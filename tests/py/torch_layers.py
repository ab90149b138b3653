"""Layers, losses and optimizers of torch, each with what it takes to train it for a step; `docs/ops.md` names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Make = Callable[[], nn.Module]

VECTOR, SEQUENCE, IMAGE, INDICES = (3, 4), (3, 5, 4), (2, 4, 8, 8), (3, 5)

LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 4), VECTOR),
    "Bilinear": (lambda: nn.Bilinear(4, 4, 4), VECTOR),
    "Identity": (nn.Identity, VECTOR),
    "Sequential": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), VECTOR),
    "Flatten": (nn.Flatten, SEQUENCE),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 2)), VECTOR),
    "ReLU": (nn.ReLU, VECTOR),
    "ReLU6": (nn.ReLU6, VECTOR),
    "LeakyReLU": (nn.LeakyReLU, VECTOR),
    "PReLU": (nn.PReLU, VECTOR),
    "ELU": (nn.ELU, VECTOR),
    "SELU": (nn.SELU, VECTOR),
    "GELU": (nn.GELU, VECTOR),
    "SiLU": (nn.SiLU, VECTOR),
    "Mish": (nn.Mish, VECTOR),
    "Tanh": (nn.Tanh, VECTOR),
    "Sigmoid": (nn.Sigmoid, VECTOR),
    "LogSigmoid": (nn.LogSigmoid, VECTOR),
    "Hardtanh": (nn.Hardtanh, VECTOR),
    "Hardswish": (nn.Hardswish, VECTOR),
    "Hardsigmoid": (nn.Hardsigmoid, VECTOR),
    "Softplus": (nn.Softplus, VECTOR),
    "Softsign": (nn.Softsign, VECTOR),
    "Tanhshrink": (nn.Tanhshrink, VECTOR),
    "Softmax": (lambda: nn.Softmax(-1), VECTOR),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), VECTOR),
    "GLU": (nn.GLU, VECTOR),
    "Dropout": (lambda: nn.Dropout(0.5), VECTOR),
    "Dropout in evaluation mode": (lambda: nn.Dropout(0.5).eval(), VECTOR),
    "LayerNorm": (lambda: nn.LayerNorm(4), VECTOR),
    "RMSNorm": (lambda: nn.RMSNorm(4), VECTOR),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), VECTOR),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), VECTOR),
    "BatchNorm1d in evaluation mode": (lambda: nn.BatchNorm1d(4).eval(), VECTOR),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(5), SEQUENCE),
    "Embedding": (lambda: nn.Embedding(7, 4), INDICES),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 4), INDICES),
    "Conv1d": (lambda: nn.Conv1d(5, 4, 3), SEQUENCE),
    "Conv2d": (lambda: nn.Conv2d(4, 4, 3), IMAGE),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 4, 3), IMAGE),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), IMAGE),
    "AvgPool2d": (lambda: nn.AvgPool2d(2), IMAGE),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), IMAGE),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "RNN": (lambda: nn.RNN(4, 4), SEQUENCE),
    "GRU": (lambda: nn.GRU(4, 4), SEQUENCE),
    "LSTM": (lambda: nn.LSTM(4, 4), SEQUENCE),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2), SEQUENCE),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), SEQUENCE),
    "CosineSimilarity": (nn.CosineSimilarity, VECTOR),
    "PairwiseDistance": (nn.PairwiseDistance, VECTOR),
}

LOSSES: dict[str, Callable[[], Any]] = {
    "MSELoss": nn.MSELoss,
    "CrossEntropyLoss": nn.CrossEntropyLoss,
    "L1Loss": nn.L1Loss,
    "SmoothL1Loss": nn.SmoothL1Loss,
    "HuberLoss": nn.HuberLoss,
    "NLLLoss": nn.NLLLoss,
    "BCELoss": nn.BCELoss,
    "BCEWithLogitsLoss": nn.BCEWithLogitsLoss,
    "KLDivLoss": lambda: nn.KLDivLoss(reduction="batchmean"),
    "PoissonNLLLoss": nn.PoissonNLLLoss,
    "SoftMarginLoss": nn.SoftMarginLoss,
    "MultiMarginLoss": nn.MultiMarginLoss,
}

OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"),
    *("Adafactor", "Muon", "LBFGS"),
)


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer `name` of torch.optim over the weights of `model`."""
    make: Any = getattr(torch.optim, name)
    return make([parameter for parameter in model.parameters() if parameter.dim() == 2], lr=0.01)


class Wrapped(nn.Module):
    """A layer behind a Linear, so that every layer has a gradient to pass on."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]):
        super().__init__()
        self.first = nn.Identity() if shape == INDICES else nn.Linear(shape[-1], shape[-1])
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if isinstance(self.layer, nn.MultiheadAttention):
            result: Any = self.layer(x, x, x)
        elif isinstance(self.layer, (nn.Bilinear, nn.CosineSimilarity, nn.PairwiseDistance)):
            result = self.layer(x, x * 0.5)
        else:
            result = self.layer(x)
        return result[0] if isinstance(result, tuple) else result


def input_of(shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers, or class indices where the shape is that of indices."""
    torch.manual_seed(1)
    return torch.randint(0, 7, shape) if shape == INDICES else torch.randn(shape)


def target_of(loss: Any, shape: torch.Size) -> torch.Tensor:
    """Class indices for the losses that want them; else probabilities, which every other loss takes."""
    torch.manual_seed(2)
    indices = isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss))
    return torch.randint(0, shape[1], shape[:1]) if indices else torch.rand(shape)
