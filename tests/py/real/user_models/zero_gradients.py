"""Models in which some gradients are zero in exact arithmetic, so that what floats leave of them is rounding noise.

Nothing changes the loss along these weights: a bias of all keys moves all scores of a query alike, a norm takes away a bias
or a scale in front of it, distances do not see a common shift. Adam divides a gradient by its own size, and steps along the
noise as far as along a gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from user_models.case import Batch, Case, Loss, behind_linear, mlp, weighed


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """With its usual epsilon, far below the noise in some of these."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)


def square(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean square of the output, which a norm at the end makes a constant."""
    return model(**batch).square().mean()


def case(function: Any, *modules: Any, shape: tuple[int, ...], loss: Loss | None = None) -> Case:
    """A function of what a Linear makes, trained by Adam."""
    made = behind_linear(function, *modules, shape=shape)
    return Case(made.model, made.batch, loss or made.loss, adam)


class Attention(nn.Module):
    """Queries, keys and values of one Linear, with biases."""

    def __init__(self, size: int, causal: bool):
        super().__init__()
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=self.causal)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and an MLP, each behind a norm and beside the way through."""

    def __init__(self, size: int, causal: bool):
        super().__init__()
        self.before, self.between = nn.LayerNorm(size), nn.LayerNorm(size)
        self.attention, self.mlp = Attention(size, causal), mlp(size, 2 * size, size, act=nn.GELU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Words(nn.Module):
    """A small language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(13, 8), nn.Embedding(6, 8)
        self.blocks = nn.Sequential(Block(8, True), Block(8, True))
        self.norm = nn.LayerNorm(8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places.weight
        return F.linear(self.norm(self.blocks(x)), self.words.weight)


def next_word(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Of each position but the last."""
    return F.cross_entropy(model(batch["ids"])[:, :-1].flatten(0, 1), batch["ids"][:, 1:].flatten())


def triplets(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Differences of outputs of one network."""
    near, far = model(batch["near"]), model(batch["far"])
    return F.triplet_margin_loss(model(batch["x"]), near, far, margin=3.0)


def attended(h: torch.Tensor, layer: nn.Module) -> torch.Tensor:
    """Of itself."""
    return layer(h, h, h, need_weights=False)[0]


def multihead() -> nn.Module:
    return nn.MultiheadAttention(8, 2, batch_first=True)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


SEQUENCE, ROWS, IMAGE = (3, 5, 8), (9, 8), (2, 3, 4, 5)

CASES: dict[str, Case] = {
    "triplets: the last bias": Case(
        lambda: mlp(6, 12, 5),
        lambda: {name: torch.randn(7, 6) for name in ("x", "near", "far")},
        triplets,
        adam,
    ),
    "distances: the bias": case(lambda h: torch.cdist(h, h), shape=(5, 8), loss=square),
    "batch norm: the bias before it": case(
        lambda h, norm, last: last(F.relu(norm(h))),
        lambda: nn.BatchNorm1d(8),
        lambda: nn.Linear(8, 3),
        shape=ROWS,
    ),
    "batch norm at the end: all before it": case(
        lambda h, norm: norm(h), lambda: nn.BatchNorm1d(8), shape=ROWS, loss=square
    ),
    "RMS norm at the end: all before it": case(
        lambda h, norm: norm(h), lambda: nn.RMSNorm(8), shape=ROWS, loss=square
    ),
    "instance norm: its bias": Case(
        lambda: nn.InstanceNorm2d(3, affine=True), lambda: {"input": torch.randn(IMAGE)}, square, adam
    ),
    "a block of GPT: biases of keys": Case(
        Words, lambda: {"ids": torch.randint(13, (3, 6))}, next_word, adam
    ),
    "a block of a vision transformer: biases of keys": case(
        lambda h, block, last: last(block(h).mean(1)),
        lambda: Block(8, False),
        lambda: nn.Linear(8, 4),
        shape=SEQUENCE,
    ),
    "MultiheadAttention: biases of keys": case(attended, multihead, shape=SEQUENCE),
    "MultiheadAttention under a mean square": case(attended, multihead, shape=SEQUENCE, loss=square),
    "TransformerEncoderLayer: biases of keys": case(
        lambda h, layer, last: last(layer(h)), encoder, lambda: nn.Linear(8, 3), shape=SEQUENCE
    ),
    "TransformerEncoderLayer: all before its last norm": Case(
        encoder, lambda: {"src": torch.randn(SEQUENCE)}, square, adam
    ),
}

KEPT: Case = case(
    lambda h, norm: norm(h), lambda: nn.LayerNorm(8), shape=ROWS, loss=lambda m, b: weighed(m(**b))
)
"""None of its gradients is zero."""
