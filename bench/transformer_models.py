"""The models that `models_gpu.py` trains: each row's model, batch and loss, by sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]
Optimize = Callable[[nn.Module], torch.optim.Optimizer]
Wrap = Callable[[Callable[..., Tensor]], Callable[..., Tensor]]
"""Of a function that gives a loss: itself, or compiled by torch."""


@dataclass(frozen=True)
class Case:
    """What a row trains; everything is made on the host."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Loss | None
    body: Callable[[nn.Module, Optimize, Wrap], Callable[[Batch], Tensor]] | None = None
    """A step with losses and optimizers of its own, instead of `loss`."""


def tokens(classes: int, *shape: int) -> Batch:
    return {name: torch.randint(classes, shape) for name in ("x", "t")}


def token_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"]).flatten(0, -2), batch["t"].flatten())


def class_loss(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch["x"]), batch["t"])


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers with an activation between."""
    parts = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), act())]
    return nn.Sequential(*parts[:-1])


class Attention(nn.Module):
    """Heads over `x`, or from `x` over `others`; grouped keys, rotated places and a bias of the scores where asked."""

    def __init__(
        self, width: int, heads: int, kv: int | None = None, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.kv, self.size, self.dropout = kv or heads, width // heads, dropout
        self.q = nn.Linear(width, width, bias=bias)
        self.k, self.v = (nn.Linear(width, self.kv * self.size, bias=bias) for _ in range(2))
        self.out = nn.Linear(width, width, bias=bias)

    def forward(
        self,
        x: Tensor,
        others: Tensor | None = None,
        turn: tuple[Tensor, Tensor] | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        y = x if others is None else others
        q, k, v = (
            part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q(x), self.k(y), self.v(y))
        )
        if turn is not None:
            q, k = (rotated(part, *turn) for part in (q, k))
        mixed = functional.scaled_dot_product_attention(
            q, k, v, mask, self.dropout if self.training else 0.0, causal, enable_gqa=q.shape[1] != self.kv
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    """Attention and an MLP, each behind a norm; a decoder's attends to others between."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        act: Callable[[Tensor], Tensor] = functional.gelu,
        gated: bool = False,
        crossed: bool = False,
        dropout: float = 0.0,
        **attention: int | bool,
    ) -> None:
        super().__init__()
        self.act, self.drop = act, nn.Dropout(dropout)
        self.norm1, self.norm2 = norm(width), norm(width)
        self.attend = Attention(width, heads, dropout=dropout, **attention)  # pyright: ignore[reportArgumentType]
        self.cross = Attention(width, heads, **attention) if crossed else None  # pyright: ignore[reportArgumentType]
        self.norm3 = norm(width) if crossed else None
        bias = bool(attention.get("bias", True))
        self.up, self.down = nn.Linear(width, inner, bias=bias), nn.Linear(inner, width, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if gated else None

    def forward(self, x: Tensor, others: Tensor | None = None, **attention: object) -> Tensor:
        x = x + self.drop(self.attend(self.norm1(x), **attention))
        if self.cross is not None and self.norm3 is not None:
            x = x + self.cross(self.norm3(x), others)
        h = self.norm2(x)
        up = self.act(self.up(h)) if self.gate is None else self.act(self.gate(h)) * self.up(h)
        return x + self.drop(self.down(up))


class Gpt(nn.Module):
    """Learned places, tied weights."""

    def __init__(
        self, classes: int, time: int, width: int, heads: int, layers: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(classes, width), nn.Embedding(time, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            Block(width, heads, 4 * width, act=tanh_gelu, dropout=dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.token(x) + self.place.weight)
        for block in self.blocks:
            h = block(h, causal=True)
        return functional.linear(self.norm(h), self.token.weight)


def tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


class Llama(nn.Module):
    """RMS norms, rotated places, grouped queries, a gated MLP."""

    def __init__(
        self, classes: int, time: int, width: int, heads: int, kv: int, inner: int, layers: int
    ) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(classes, width), nn.Linear(width, classes, bias=False)
        self.blocks = nn.ModuleList(
            Block(width, heads, inner, nn.RMSNorm, functional.silu, gated=True, kv=kv, bias=False)
            for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        size = width // heads
        angles = torch.outer(
            torch.arange(time, device="cpu"), 1e4 ** -(torch.arange(0, size, 2, device="cpu") / size)
        )
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x)
        for block in self.blocks:
            h = block(h, turn=(self.cos, self.sin), causal=True)
        return self.head(self.norm(h))


class Bert(nn.Module):
    """An encoder of torch with a head over its words."""

    def __init__(self, classes: int, time: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(classes, width), nn.Embedding(time, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.norm, self.body = nn.LayerNorm(width), nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.norm(self.token(x) + self.place.weight)))


class T5(nn.Module):
    """Encoder and decoder whose scores get a learned bias by distance."""

    def __init__(self, classes: int, time: int, width: int, heads: int, inner: int, layers: int) -> None:
        super().__init__()
        self.token, self.head = nn.Embedding(classes, width), nn.Linear(width, classes, bias=False)

        def blocks(crossed: bool) -> nn.ModuleList:
            return nn.ModuleList(
                Block(width, heads, inner, nn.RMSNorm, functional.relu, crossed=crossed, bias=False)
                for _ in range(layers)
            )

        self.encoder, self.decoder = blocks(False), blocks(True)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.bias1, self.bias2 = (nn.Embedding(2 * time - 1, heads) for _ in range(2))
        places = torch.arange(time, device="cpu")
        self.register_buffer("distance", places[:, None] - places[None] + time - 1)
        self.register_buffer("later", torch.where(places[:, None] < places[None], -math.inf, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        h = y = self.token(x)
        bias = self.bias1(self.distance).permute(2, 0, 1)[None]
        for block in self.encoder:
            h = block(h, mask=bias)
        h, bias = self.norm1(h), self.bias2(self.distance).permute(2, 0, 1)[None] + self.later
        for block in self.decoder:
            y = block(y, h, mask=bias)
        return self.head(self.norm2(y))


def patches(x: Tensor, side: int) -> Tensor:
    """[batch, channels, height, width] as rows of patches."""
    b, c, h, w = x.shape
    return (
        x.view(b, c, h // side, side, w // side, side)
        .permute(0, 2, 4, 1, 3, 5)
        .reshape(b, -1, c * side * side)
    )


class Vit(nn.Module):
    def __init__(self, image: int, side: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.side, self.embed = side, nn.Linear(3 * side * side, width)
        self.place = nn.Parameter(0.02 * torch.randn((image // side) ** 2, width, device="cpu"))
        self.blocks = nn.Sequential(*(Block(width, heads, 4 * width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(patches(x, self.side)) + self.place)).mean(1))


class DitBlock(nn.Module):
    """Norms without weights, shifted, scaled and gated by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attend, self.mlp = Attention(width, heads), mlp(width, 4 * width, width, act=nn.GELU)
        self.condition = nn.Linear(width, 6 * width)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, z1, g1, s2, z2, g2 = self.condition(functional.silu(c))[:, None].chunk(6, -1)
        x = x + g1 * self.attend(self.norm1(x) * (1 + z1) + s1)
        return x + g2 * self.mlp(self.norm2(x) * (1 + z2) + s2)


class Dit(nn.Module):
    """A diffusion transformer over latents: predicts the noise at a time."""

    def __init__(self, image: int, width: int, heads: int, layers: int, classes: int) -> None:
        super().__init__()
        self.embed, self.last = nn.Linear(16, width), nn.Linear(width, 16)
        self.place = nn.Parameter(0.02 * torch.randn((image // 2) ** 2, width, device="cpu"))
        self.time, self.label = mlp(256, width, width, act=nn.SiLU), nn.Embedding(classes, width)
        self.blocks = nn.ModuleList(DitBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("waves", 1e4 ** -(torch.arange(128, device="cpu") / 128))

    def forward(self, x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        angles = time[:, None] * self.waves
        c = self.time(torch.cat((angles.cos(), angles.sin()), 1)) + self.label(label)
        h = self.embed(patches(x, 2)) + self.place
        for block in self.blocks:
            h = block(h, c)
        return self.last(self.norm(h))


def dit_loss(model: nn.Module, batch: Batch) -> Tensor:
    keep = (1 - batch["time"] / 1000)[:, None, None, None]
    noisy = keep.sqrt() * batch["x"] + (1 - keep).sqrt() * batch["noise"]
    return functional.mse_loss(
        model(noisy, batch["time"], batch["label"]).float(), patches(batch["noise"], 2)
    )
