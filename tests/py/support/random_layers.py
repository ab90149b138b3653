"""Layers of random train steps: each a small module whose gradients meet the compiler in another way."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch
from torch import nn


class Scale(nn.Module):
    """x · weight + shift, both broadcast over all but the last dimension."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(width))
        self.shift = nn.Parameter(0.2 * torch.randn(1, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.shift

    def extra_repr(self) -> str:
        return str(self.width)


class Scalar(nn.Module):
    """An operation with a number on either side."""

    FORMS: Mapping[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
        "x + c": lambda x, c: x + c,
        "c - x": lambda x, c: c - x,
        "x - c": lambda x, c: x - c,
        "x * c": lambda x, c: x * c,
        "x / c": lambda x, c: x / c,
        "-x": lambda x, c: -x,
    }

    def __init__(self, form: str, number: float):
        super().__init__()
        self.form, self.number = form, number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.FORMS[self.form](x, self.number)

    def extra_repr(self) -> str:
        return f"{self.form!r}, c={self.number}"


class Residual(nn.Module):
    """x + inner(x): the intermediate has two users, in both directions."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Gate(nn.Module):
    """left(x) · sigmoid(right(x)), or left(x) / (1 + sigmoid(right(x))): two branches meet."""

    def __init__(self, inputs: int, outputs: int, divide: bool):
        super().__init__()
        self.left, self.right = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)
        self.divide = divide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(self.right(x))
        return self.left(x) / (1 + gate) if self.divide else self.left(x) * gate

    def extra_repr(self) -> str:
        return f"divide={self.divide}"


class TwoUsers(nn.Module):
    """One layer's result before and after its activation, or in two activations: fusion must lose neither."""

    def __init__(self, width: int, first: nn.Module, second: nn.Module | None):
        super().__init__()
        self.layer, self.first, self.second = nn.Linear(width, width), first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.layer(x)
        return self.first(h) * self.second(h) if self.second else self.first(h) + h


class Cast(nn.Module):
    """A detour through another float type."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(self.dtype) * 1.25).to(x.dtype)

    def extra_repr(self) -> str:
        return str(self.dtype)


class Center(nn.Module):
    """x minus its mean over one dimension."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(self.dim, keepdim=True)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class AddSum(nn.Module):
    """x + sum of x over one dimension, scaled; the dimension is dropped and put back."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.sum(self.dim).unsqueeze(self.dim) / x.shape[self.dim]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class MatMul(nn.Module):
    """x @ weight, the weight as it is or as the transpose of a parameter."""

    def __init__(self, inputs: int, outputs: int, transposed: bool):
        super().__init__()
        self.transposed = transposed
        shape = (outputs, inputs) if transposed else (inputs, outputs)
        self.weight = nn.Parameter(torch.randn(shape) / inputs**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight.transpose(0, 1) if self.transposed else self.weight)

    def extra_repr(self) -> str:
        return f"{list(self.weight.shape)}, transposed={self.transposed}"


class SelfProduct(nn.Module):
    """x (xᵀ x) scaled down: products of two activations, batched for three dimensions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (x.transpose(-1, -2) @ x) / (x.shape[-1] * x.shape[-2])


class Reshaped(nn.Module):
    """inner on all leading dimensions flattened into one."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x.reshape(-1, x.shape[-1]))
        return y.view(*x.shape[:-1], y.shape[-1])


class Shared(nn.Module):
    """One square layer used twice, and once more through its transpose: a tied weight."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(torch.tanh(self.layer(x)))) @ self.layer.weight

    def extra_repr(self) -> str:
        return ""


class Frozen(nn.Module):
    """A layer that is not trained, and a buffer."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.register_buffer("offset", torch.randn(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.offset


class Dead(nn.Module):
    """A parameter that the loss does not use."""

    def __init__(self, width: int):
        super().__init__()
        self.unused = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def extra_repr(self) -> str:
        return str(list(self.unused.shape))


ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU,
    nn.GELU,
    lambda: nn.GELU(approximate="tanh"),
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Softplus,
    nn.LogSigmoid,
    nn.Mish,
    nn.Hardswish,
    nn.ELU,
    nn.SELU,
    lambda: nn.LeakyReLU(0.1),
    lambda: nn.Softmax(-1),
)

Draw = random.Random


def dense(draw: Draw, inputs: int, outputs: int) -> nn.Module:
    """A layer from `inputs` to `outputs` features."""
    kind = draw.choice(("linear",) * 5 + ("no bias", "matmul", "gate", "frozen", "reshaped"))
    if kind == "matmul":
        return MatMul(inputs, outputs, draw.random() < 0.5)
    if kind == "gate":
        return Gate(inputs, outputs, draw.random() < 0.5)
    if kind == "frozen":
        return Frozen(inputs, outputs)
    layer = nn.Linear(inputs, outputs, bias=kind != "no bias")
    return Reshaped(layer) if kind == "reshaped" else layer


def between(draw: Draw, width: int) -> list[nn.Module]:
    """What stands between two dense layers; it keeps the number of features."""
    activation = draw.choice(ACTIVATIONS)
    rows: tuple[Callable[[], list[nn.Module]], ...] = (
        lambda: [Scale(width)],
        lambda: [Scalar(draw.choice(list(Scalar.FORMS)), draw.choice((0.5, 2.0, 1.5, 3)))],
        lambda: [Residual(nn.Sequential(nn.Linear(width, width), draw.choice(ACTIVATIONS)()))],
        lambda: [TwoUsers(width, activation(), draw.choice((lambda: None, *ACTIVATIONS[2:]))())],
        lambda: [Cast(torch.float64)],
        lambda: [Center(draw.choice((-1, -2)))],
        lambda: [AddSum(draw.choice((-1, 0)))],
        lambda: [SelfProduct()],
        lambda: [Shared(width)],
        lambda: [Dead(width)],
        lambda: [activation(), draw.choice(ACTIVATIONS)()],
    )
    extra = draw.choice(rows)() if draw.random() < 0.5 else []
    return [*extra, activation()] if draw.random() < 0.85 else extra
