"""What `train_step.py` and `rows_gpu.py` train: a model, a batch, a loss and an optimizer, the same for each contender."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import image_models as im
import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]
"""`x` and the target `t`."""

AUTOCAST = {"bf16": torch.bfloat16, "f16": torch.float16}
"""What a precision computes in beside weights of f32, by the rules of torch.autocast and without a scale of the loss."""


@dataclass(frozen=True)
class Workload:
    """One row: what is trained, with weights of f32, a learning rate of 1e-3 and torch's other defaults."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]
    """Of what the model gives and of the target."""
    adamw: bool
    """AdamW, or Adam."""
    forward: str = ""
    """The same model in JAX: a function of `jax_models.py`; empty where it is not there."""
    precision: str = "f32"
    """"f32", "tf32", or one of `AUTOCAST`."""
    tolerance: float = 1e-3
    """Of the loss after some steps, relative. Adam makes much of the last bits of a gradient that is nearly 0."""

    def torch_optimizer(self, model: nn.Module, **options: bool) -> torch.optim.Optimizer:
        kind = torch.optim.AdamW if self.adamw else torch.optim.Adam
        return kind(model.parameters(), lr=1e-3, **options)

    def plain_loss_of(self, model: nn.Module, batch: Batch) -> Tensor:
        """In f32."""
        return self.loss(model(batch["x"]), batch["t"])

    def loss_of(self, model: nn.Module, batch: Batch) -> Tensor:
        """In the precision, but for tf32, which is a setting of the whole process in torch."""
        if self.precision not in AUTOCAST:
            return self.plain_loss_of(model, batch)
        with torch.autocast(batch["x"].device.type, dtype=AUTOCAST[self.precision]):
            return self.plain_loss_of(model, batch)


def on_device(batch: Batch, device: str) -> Batch:
    """Itself where it is there."""
    return {name: value.to(device) for name, value in batch.items()}


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of [batch, time, classes] and [batch, time]."""
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def mlp(width: int, layers: int) -> nn.Sequential:
    """`layers` square Linear layers with ReLU between."""
    parts: list[nn.Module] = []
    for i in range(layers):
        parts += [nn.Linear(width, width)] + ([nn.ReLU()] if i < layers - 1 else [])
    return nn.Sequential(*parts)


class ResidualBlock(nn.Module):
    """x + out(gelu(fc(norm(x)))), all of one width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(functional.gelu(self.fc(self.norm(x))))


class TransformerBlock(nn.Module):
    """Causal attention and a GELU MLP of four times the width, each behind a layer norm, as in GPT-2."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, time, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        return x + self.out(functional.gelu(self.fc(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """Token and position embeddings, blocks of 4 heads, a layer norm and a head of its own."""

    def __init__(self, classes: int, time: int, width: int, layers: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(classes, width), nn.Embedding(time, width)
        self.blocks = nn.Sequential(*(TransformerBlock(width, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.token(x) + self.position.weight)))


def numbers(batch: int, width: int) -> Batch:
    return {"x": torch.randn(batch, width), "t": torch.randn(batch, width)}


def tokens(batch: int, time: int, classes: int) -> Batch:
    return {name: torch.randint(0, classes, (batch, time)) for name in ("x", "t")}


def mlp_row(batch: int, width: int, layers: int, precision: str = "f32") -> Workload:
    """MSE and Adam."""
    name = f"{batch} × {width} × {layers}" + ("" if precision == "f32" else f" {precision}")
    model, data = partial(mlp, width, layers), partial(numbers, batch, width)
    return Workload(name, model, data, functional.mse_loss, False, "mlp", precision)


RESIDUAL = Workload(
    "residual MLP 256 × 512 × 4",
    lambda: nn.Sequential(*(ResidualBlock(512) for _ in range(4))),
    partial(numbers, 256, 512),
    functional.mse_loss,
    True,
    "residual",
)
GPT = Workload(
    "GPT, 2 layers, D 128, T 64, B 16",
    partial(Gpt, 256, 64, 128, 2),
    partial(tokens, 16, 64, 256),
    token_loss,
    True,
    "gpt",
)


def image_row(name: str, model: Callable[[], nn.Module], batch: int, channels: int, size: int) -> Workload:
    """Ten classes, cross entropy and AdamW."""
    data = partial(im.images, batch, channels, size, 10)
    return Workload(name, model, data, functional.cross_entropy, True, tolerance=5e-3)


WORKLOADS = [
    mlp_row(64, 8, 2),
    mlp_row(64, 256, 2),
    mlp_row(256, 512, 4),
    mlp_row(1024, 1024, 4),
    RESIDUAL,
    GPT,
    image_row("LeNet, 28 × 28, B 64", im.lenet, 64, 1, 28),
    image_row("ResNet-9, 32 × 32, B 32", im.resnet9, 32, 3, 32),
    image_row("depthwise-separable, 32 × 32 × 64, B 32", partial(im.separable, 64), 32, 64, 32),
    image_row("depthwise-separable, 16 × 16 × 128, B 32", partial(im.separable, 128), 32, 128, 16),
]
"""Those of `train_step.py`; a product of batch, width and layers is an MLP with ReLU, MSE and Adam."""
