"""Random train steps for the passes between a step and its plan: attention, gates, norms and parts of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from models import OPTIMIZERS, Batch, MakeOptimizer
from random_layers import ACTIVATIONS, Draw
from torch import nn
from torch.nn import functional
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import trace
from aicf_mlir.frontend.precision import Precision

CLASSES = 7
"""Of a loss, and of an embedding."""


class Attention(nn.Module):
    """Queries, keys and values of one product, with fewer heads for the last two; positions may rotate queries and keys."""

    def __init__(self, draw: Draw, width: int):
        super().__init__()
        self.size, self.heads = draw.choice((2, 4)), draw.choice((2, 4))
        self.groups = draw.choice((1, self.heads))
        self.inner = self.size * self.heads
        self.of_keys = self.size * self.heads // self.groups
        self.kind = draw.choice(("written", "whole", "causal", "dropped"))
        self.rotates, self.norms = draw.random() < 0.5, draw.random() < 0.3
        self.together = draw.random() < 0.7
        if self.together:
            self.product = nn.Linear(width, self.inner + 2 * self.of_keys, bias=draw.random() < 0.5)
        else:
            self.parts = nn.ModuleList(
                nn.Linear(width, n, bias=False) for n in (self.inner, self.of_keys, self.of_keys)
            )
        self.out = nn.Linear(self.inner, width)

    def split(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The three, each by heads."""
        if self.together:
            parts = list(self.product(x).split((self.inner, self.of_keys, self.of_keys), -1))
        else:
            parts = [part(x) for part in self.parts]
        return [part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts]

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Halves that turn by the place of a row."""
        first, second = x.chunk(2, -1)
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] / 3
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(x)
        if self.norms:
            q, k = (functional.layer_norm(part, (self.size,)) for part in (q, k))
        if self.rotates:
            q, k = self.rotated(q), self.rotated(k)
        if self.groups > 1:
            k, v = (part.repeat_interleave(self.groups, 1) for part in (k, v))
        if self.kind == "written":
            y = functional.dropout(torch.softmax(q @ k.transpose(-1, -2) / self.size**0.5, -1), 0.3) @ v
        else:
            p = 0.3 if self.kind == "dropped" else 0.0
            y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.kind == "causal")
        return x + self.out(y.transpose(1, 2).flatten(2))

    def extra_repr(self) -> str:
        return f"{self.kind}, rotates={self.rotates}, norms={self.norms}, groups={self.groups}"


class Perceptron(nn.Module):
    """A norm, a product, an activation or a gate, dropout and a product."""

    def __init__(self, draw: Draw, width: int):
        super().__init__()
        self.gated, inner = draw.random() < 0.5, draw.choice((5, 8, 16))
        self.norm = draw.choice((nn.LayerNorm, nn.RMSNorm, nn.Identity))(width)
        self.up = nn.Linear(width, 2 * inner if self.gated else inner, bias=draw.random() < 0.5)
        self.activation = draw.choice(ACTIVATIONS)()
        self.dropout = nn.Dropout(draw.choice((0.0, 0.2)))
        self.down = nn.Linear(inner, width)
        self.beside = draw.random() < 0.7

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(self.norm(x))
        if self.gated:
            gate, h = h.chunk(2, -1)
            h = self.activation(gate) * h
        else:
            h = self.activation(h)
        y = self.down(self.dropout(h))
        return x + y if self.beside else y

    def extra_repr(self) -> str:
        return f"gated={self.gated}, beside={self.beside}"


class Mixed(nn.Module):
    """A product over the rows of an image or a sentence: its operands are transposed, and joined with what they were."""

    def __init__(self, draw: Draw, width: int, length: int):
        super().__init__()
        self.across = nn.Linear(length, length)
        self.joined = draw.random() < 0.5
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.across(x.transpose(1, 2)).transpose(1, 2)
        return self.down(torch.cat((x, y), -1)) if self.joined else x * torch.sigmoid(y)


class Shifted(nn.Module):
    """Rows beside those before and after them: padded, cut and added; or rolled, of which every other one is read."""

    def __init__(self, draw: Draw, width: int):
        super().__init__()
        self.kind, self.weight = (
            draw.choice(("padded", "rolled", "strided")),
            nn.Parameter(torch.randn(width)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "padded":
            wide = functional.pad(x, (0, 0, 1, 1))
            return wide[:, :-2] * self.weight + wide[:, 2:] - x
        if self.kind == "rolled":
            return torch.roll(x, 1, 1) * self.weight + x.flip(2)
        even = x[:, ::2] * self.weight
        return torch.cat((even, x[:, 1::2].exp().clamp(max=3.0)), 1)

    def extra_repr(self) -> str:
        return self.kind


class Picture(nn.Module):
    """A convolution of a square of rows, a norm over the batch, and rows again."""

    def __init__(self, draw: Draw, width: int, side: int):
        super().__init__()
        self.side = side
        self.convolution = nn.Conv2d(width, width, 3, padding=1, groups=draw.choice((1, width)))
        self.norm = draw.choice((nn.BatchNorm2d(width), nn.GroupNorm(1, width), nn.Identity()))
        self.activation = draw.choice(ACTIVATIONS[:6])()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = x.transpose(1, 2).unflatten(2, (self.side, self.side))
        return x + self.activation(self.norm(self.convolution(image))).flatten(2).transpose(1, 2)


class Network(nn.Module):
    """Layers over sentences of a vocabulary, or over rows of numbers; the first and the last may share a table."""

    def __init__(self, draw: Draw, words: bool, length: int, width: int):
        super().__init__()
        self.table = nn.Embedding(CLASSES, width, padding_idx=draw.choice((None, 0)))
        if not words:
            self.table = nn.Linear(3, width)
        self.positions = nn.Parameter(torch.randn(length, width)) if draw.random() < 0.5 else None
        kinds: list[Callable[[], nn.Module]] = [
            lambda: Attention(draw, width),
            lambda: Attention(draw, width),
            lambda: Perceptron(draw, width),
            lambda: Perceptron(draw, width),
            lambda: Mixed(draw, width, length),
            lambda: Shifted(draw, width),
            lambda: nn.LayerNorm(width),
        ]
        if (side := round(length**0.5)) ** 2 == length > 1:
            kinds.append(lambda: Picture(draw, width, side))
        self.layers = nn.ModuleList(draw.choice(kinds)() for _ in range(draw.choice((1, 2, 2, 3))))
        self.head = nn.Linear(width, CLASSES, bias=False)
        if words and draw.random() < 0.3:
            self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.table(x)
        h = h if self.positions is None else h + self.positions
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


@dataclass(frozen=True)
class LoweredStep:
    """One train step to be lowered."""

    seed: int
    make_model: Callable[[], nn.Module]
    loss: Callable[[nn.Module, Mapping[str, torch.Tensor]], torch.Tensor]
    batch: Batch
    optimizer: MakeOptimizer
    precision: str | None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Passes that are asked for, with their options."""

    def traced(self) -> ModuleOp:
        """The step as it is written."""
        model = self.make_model()
        precision = Precision(self.precision, torch.device("cpu"))
        optimizer = self.optimizer(model)
        return trace(model, self.loss, self.batch, optimizer=optimizer, precision=precision).module

    def __repr__(self) -> str:
        shapes = {name: list(value.shape) for name, value in self.batch.items()}
        return f"{self.make_model()!r}\n{self.optimizer}, {shapes}, {self.precision}, {dict(self.options)}"


def lowered_step(seed: int) -> LoweredStep:
    """The step of a seed."""
    draw = Draw(seed)
    words, of_model = draw.random() < 0.6, draw.getrandbits(32)
    rows, length, width = draw.choice((1, 2, 3)), draw.choice((1, 2, 4, 5, 9)), draw.choice((4, 6, 8))
    dtype = draw.choice((torch.float32,) * 3 + (torch.bfloat16, torch.float16))

    def make_model() -> nn.Module:
        torch.manual_seed(of_model)
        return Network(Draw(of_model), words, length, width).to(dtype)

    kind, smoothing = draw.choice(("classes", "classes", "numbers")), draw.choice((0.0, 0.1))
    ignored = draw.choice((-100, 1))

    def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        y = model(batch["x"])
        if kind == "numbers":
            return functional.mse_loss(y, batch["t"])
        return functional.cross_entropy(
            y.flatten(0, 1), batch["t"].flatten(), label_smoothing=smoothing, ignore_index=ignored
        )

    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, length, 3, generator=generator).to(dtype)
    x = torch.randint(0, CLASSES, (rows, length), generator=generator) if words else numbers
    t = torch.randint(0, CLASSES, (rows, length), generator=generator)
    if kind == "numbers":
        t = torch.randn(rows, length, CLASSES, generator=generator).to(dtype)
    optimizer = draw.choice(OPTIMIZERS)
    options: dict[str, str] = {}
    if draw.random() < 0.3:
        options["accumulate"] = f"count={draw.choice((1, 2, 3))}"
    if draw.random() < 0.3:
        options["clip-gradients"] = draw.choice(("norm=2.0", "value", "value norm=inf"))
    if draw.random() < 0.2:
        options["check-finite"] = ""
    if draw.random() < 0.2:
        options["apply-optimizer"] = "keep-grads"
    if draw.random() < 0.6:
        options["multi-stream"] = ""
    low = dtype is torch.float32 and draw.random() < 0.4
    precision = draw.choice(("bf16", "f16", "tf32")) if low else None
    return LoweredStep(seed, make_model, loss, {"x": x, "t": t}, optimizer, precision, options)
