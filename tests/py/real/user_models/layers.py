"""Layers of torch.nn other than activations, attention and recurrent ones."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from user_models.case import Case, apply, behind_linear, mlp, weighed

IMAGE, SEQUENCE = (2, 4, 5, 6), (3, 6, 7)


def over_words(layer: nn.Module, *shape: int) -> Case:
    """A layer that takes indices below 11."""
    return Case(lambda: nn.Sequential(layer, nn.Tanh()), lambda: {"input": torch.randint(11, shape)})


def recomputed(h: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """A layer whose backward computes it again."""
    result: Any = torch.utils.checkpoint.checkpoint(layer, h, use_reentrant=False)
    return result


class Tied(nn.Module):
    """One Linear twice, once transposed: an autoencoder with tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(8, 3)
        self.bias = nn.Parameter(torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(self.encode(x)), self.encode.weight.t(), self.bias)


def normalized_weights(x: torch.Tensor, layer: Any) -> torch.Tensor:
    """A cosine classifier."""
    return 4 * F.normalize(x, dim=1) @ F.normalize(layer.weight, dim=1).T


CASES: dict[str, Case] = {
    "LayerNorm": behind_linear(apply, lambda: nn.LayerNorm(8)),
    "LayerNorm of two dimensions": behind_linear(
        apply, lambda: nn.LayerNorm((6, 7), eps=1e-3), shape=SEQUENCE
    ),
    "LayerNorm without weights": behind_linear(apply, lambda: nn.LayerNorm(8, elementwise_affine=False)),
    "RMSNorm": behind_linear(apply, lambda: nn.RMSNorm(8, eps=1e-5)),
    "GroupNorm": behind_linear(apply, lambda: nn.GroupNorm(2, 4), shape=IMAGE),
    "InstanceNorm2d": behind_linear(apply, lambda: nn.InstanceNorm2d(4, affine=True), shape=IMAGE),
    "BatchNorm1d": behind_linear(apply, lambda: nn.BatchNorm1d(8)),
    "BatchNorm1d of a sequence": behind_linear(apply, lambda: nn.BatchNorm1d(6), shape=SEQUENCE),
    "BatchNorm2d": behind_linear(apply, lambda: nn.BatchNorm2d(4, momentum=0.3), shape=IMAGE),
    "BatchNorm2d in evaluation mode": behind_linear(apply, lambda: nn.BatchNorm2d(4).eval(), shape=IMAGE),
    "Bilinear": behind_linear(lambda h, layer: layer(h, h * 2), lambda: nn.Bilinear(8, 8, 3)),
    "Bilinear of sequences": behind_linear(
        lambda h, layer: layer(h[..., :4], h), lambda: nn.Bilinear(4, 7, 2, bias=False), shape=SEQUENCE
    ),
    "nearest Upsample": behind_linear(apply, lambda: nn.Upsample(scale_factor=2), shape=IMAGE),
    "bilinear Upsample": behind_linear(apply, lambda: nn.Upsample(size=(7, 9), mode="bilinear"), shape=IMAGE),
    "linear Upsample": behind_linear(
        apply, lambda: nn.Upsample(scale_factor=2, mode="linear"), shape=SEQUENCE
    ),
    "AdaptiveAvgPool2d to one": behind_linear(apply, lambda: nn.AdaptiveAvgPool2d(1), shape=IMAGE),
    "PixelShuffle": behind_linear(apply, lambda: nn.PixelShuffle(2), shape=IMAGE),
    "Flatten": behind_linear(
        lambda h, flat, last: last(flat(h)), nn.Flatten, lambda: nn.Linear(120, 3), shape=IMAGE
    ),
    "Embedding": over_words(nn.Embedding(11, 6), 3, 4),
    "Embedding with a padding index": over_words(nn.Embedding(11, 6, padding_idx=2), 3, 4),
    "EmbeddingBag": over_words(nn.EmbeddingBag(11, 6), 3, 4),
    "EmbeddingBag of sums": over_words(nn.EmbeddingBag(11, 6, mode="sum"), 3, 4),
    "weight_norm": behind_linear(apply, lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))),
    "cosine classifier": behind_linear(normalized_weights, lambda: nn.Linear(8, 5, bias=False)),
    "checkpoint": behind_linear(recomputed, lambda: mlp(8, 9, 8, act=nn.GELU)),
    "dropout of nothing": behind_linear(apply, lambda: nn.Dropout(0.0)),
    "dropout in evaluation mode": behind_linear(apply, lambda: nn.Sequential(nn.Dropout(0.4)).eval()),
    "tied autoencoder": Case(
        Tied, lambda: {"x": torch.rand(6, 8)}, lambda m, b: F.mse_loss(m(b["x"]), b["x"])
    ),
    "fixed features": Case(
        lambda: nn.Sequential(mlp(8, 9).requires_grad_(False), nn.ReLU(), nn.Linear(9, 2)),
        lambda: {"input": torch.randn(6, 8)},
        lambda m, b: weighed(m(b["input"])),
        lambda m: torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.05),
    ),
}
