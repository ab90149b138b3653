"""Models trained in a precision: in torch under autocast, with a GradScaler for f16, or compiled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from models import (
    Batch,
    Loss,
    Tied,
    classification,
    cross_entropy,
    mlp,
    mse,
    regression,
    to_device,
    values,
)
from oracle import root_mean_square
from torch import nn

from aicf_mlir import CompiledTrainStep, compile_train_step

LOW: Mapping[str, torch.dtype] = {"bf16": torch.bfloat16, "f16": torch.float16}


class Attending(nn.Module):
    """A block of a transformer over [batch, 6, 16] with a class for each position."""

    def __init__(self, width: int = 16, heads: int = 2, classes: int = 5):
        super().__init__()
        torch.manual_seed(0)
        self.heads = heads
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(mixed.reshape(rows, length, width))
        x = x + self.back(F.gelu(self.wide(self.behind(x))))
        return self.head(x).flatten(0, 1)


class Written(nn.Module):
    """Products and sums without layers: an einsum, a matrix times a vector, a softmax and a norm."""

    def __init__(self, features: int = 8):
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(features, features))
        self.vector = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum("bi,oi->bo", x, self.weight)
        weighted = torch.softmax(y, -1) * (y @ self.vector).unsqueeze(-1)
        return weighted / (1 + weighted.norm(dim=-1, keepdim=True)) + y.exp().log1p()


def tokens(rows: int = 4) -> Batch:
    """Inputs and a class for each position of `Attending`."""
    generator = torch.Generator().manual_seed(1)
    return {
        "x": torch.randn(rows, 6, 16, generator=generator),
        "t": torch.randint(0, 5, (rows * 6,), generator=generator),
    }


@dataclass(frozen=True)
class Case:
    """A model with its loss and a batch."""

    make: Callable[[], nn.Module]
    loss: Loss
    batch: Callable[[], Batch]


CASES: Mapping[str, Case] = {
    "mlp": Case(lambda: mlp(8, 32, 32, 8), mse, lambda: regression(16)),
    "classifier": Case(lambda: mlp(8, 32, 4, activation=nn.Tanh), cross_entropy, lambda: classification(16)),
    "attention": Case(Attending, cross_entropy, tokens),
    "tied": Case(Tied, mse, lambda: regression(16)),
    "written": Case(Written, mse, lambda: regression(16)),
}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2, eps=1e-3)


class Training:
    """A model and its optimizer, trained in torch or by a compiled step."""

    def __init__(
        self, case: str, device: str = "cpu", optimizer: Callable[[Any], torch.optim.Optimizer] = sgd
    ):
        self.case = CASES[case]
        self.device = device
        self.model = self.case.make().to(device)
        self.began = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.optimizer = optimizer(self.model.parameters())
        self.losses: list[torch.Tensor] = []

    @property
    def batch(self) -> Batch:
        return to_device(self.case.batch(), self.device)

    def compiled(self, **options: Any) -> CompiledTrainStep:
        given = {"loss_fn": self.case.loss, "example": self.batch, "device": self.device, **options}
        return compile_train_step(self.model, self.optimizer, **given)

    def in_torch(self, precision: str, steps: int, loss_scale: bool = True) -> float:
        """By the loop that a user of torch writes; the scale of the loss in the end."""
        kind = torch.device(self.device).type
        scaler = torch.amp.GradScaler(kind, enabled=precision == "f16" and loss_scale)
        for _ in range(steps):
            self.optimizer.zero_grad()
            with torch.autocast(kind, LOW[precision]):
                loss = self.case.loss(self.model, self.batch)
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
            self.losses.append(loss.detach().clone())
        return scaler.get_scale()

    def moved(self) -> dict[str, torch.Tensor]:
        """How far each parameter is from where it was."""
        return {name: (p.detach() - self.began[name]).cpu() for name, p in self.model.named_parameters()}

    def values(self) -> dict[str, torch.Tensor]:
        """Parameters and states, copies."""
        return {name: value.cpu() for name, value in values(self.model, self.optimizer).items()}


def assert_near(
    ours: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], relative: float
) -> None:
    """Fail with the names of tensors whose root-mean-square difference is more than this part of their own."""
    assert list(ours) == list(expected)
    far = {
        name: error
        for name, value in expected.items()
        if not (error := root_mean_square(ours[name] - value) / (root_mean_square(value) or 1.0)) <= relative
    }
    assert not far, f"further than {relative:.1e} from torch: {far}"


PRODUCTS = ("gemm", "batched_gemm", "attention")
"""What the names of launches with products begin with."""


def products_in(step: CompiledTrainStep) -> set[str]:
    """The element types of what the products of a plan multiply."""
    launches: list[Any] = json.loads(step.describe(json=True))["launches"]
    return {
        tensor["dtype"]
        for launch in launches
        if launch["op"].startswith(PRODUCTS)
        for operand in launch["operands"]
        if operand["name"] in ("a", "b", "q", "k", "v")
        for tensor in operand["tensors"]
    }
