"""Random train steps: model, batches, loss and optimizer from one seed; `repr` of a program shows them."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from models import OPTIMIZERS, Batch, MakeOptimizer
from step_options import Options, options_of
from torch import nn

SIZES = (1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 127, 129)
"""One below, at and above what kernels are tiled and vectorised by."""

STEPS_EACH = 6
"""One random program in so many is a train step."""

DTYPES = (*[torch.float32] * 16, torch.float64, torch.float64, torch.bfloat16, torch.float16)


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


def _dense(draw: Draw, inputs: int, outputs: int) -> nn.Module:
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


def _between(draw: Draw, width: int) -> list[nn.Module]:
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


@dataclass(frozen=True)
class Loss:
    """A loss of (model, batch) by name and options."""

    kind: str
    options: dict[str, Any]

    def __call__(self, model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        y, t = model(batch["x"]), batch["t"]
        if self.kind == "cross_entropy":
            return nn.functional.cross_entropy(y.flatten(0, -2), t.flatten(), **self.options)
        if self.kind == "mse":
            return nn.functional.mse_loss(y, t, **self.options)
        return (y * t).mean() + 0.5 * (y * y).sum() / y.numel()


@dataclass(frozen=True)
class Program:
    """One train step to be compiled, with three batches to run it on."""

    seed: int
    dtype: torch.dtype
    make_model: Callable[[], nn.Module]
    loss: Loss
    optimizer: MakeOptimizer
    batches: list[Batch]
    options: Options

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {list(t.shape)}" for name, t in self.batches[0].items())
        return f"{self.make_model()!r}\n{self.loss}, {self.optimizer}, {self.options}, {self.dtype}, {shapes}"


@dataclass(frozen=True)
class InGroups:
    """An optimizer whose parameters lie in two groups, the second with a tenth of the lr."""

    config: Any

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        parameters = [p for p in model.parameters() if p.requires_grad]
        lr = self.config.options["lr"] / 10
        groups = [{"params": parameters[::2]}, {"params": parameters[1::2], "lr": lr}]
        return self.config.kind([g for g in groups if g["params"]], **self.config.options)

    def __str__(self) -> str:
        return f"{self.config} in two groups"


def _loss(draw: Draw, classes: int) -> Loss:
    reduction = draw.choice(("mean", "sum"))
    kind = draw.choice(("mse", "mse", "cross_entropy", "cross_entropy", "products"))
    if kind != "cross_entropy":
        return Loss(kind, {"reduction": reduction})
    return Loss(
        kind,
        {
            "reduction": reduction,
            "ignore_index": draw.choice((-100, 0, classes - 1)),
            "label_smoothing": draw.choice((0.0, 0.0, 0.1)),
        },
    )


def _inputs(draw: Draw, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Normal numbers, whole numbers, mostly zeros, rows of very different size, or some NaN and infinities."""
    x = torch.randn(shape, generator=generator)
    kind = draw.choice(("normal",) * 4 + ("whole", "sparse", "scaled") * 2 + ("special",))
    if kind == "whole":
        return torch.randint(-3, 4, shape, generator=generator).float()
    if kind == "sparse":
        return x * (torch.rand(shape, generator=generator) < 0.2)
    if kind == "special":
        special = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf])
        chosen = special[torch.randint(0, len(special), shape, generator=generator)]
        return torch.where(torch.rand(shape, generator=generator) < 0.02, chosen, x)
    if kind == "scaled":
        return x * 10.0 ** torch.randint(-6, 1, (shape[0],) + (1,) * (len(shape) - 1), generator=generator)
    return x


def program(seed: int) -> Program:
    """The program of a seed: the same in every process."""
    draw = Draw(seed)
    generator = torch.Generator().manual_seed(seed)
    batch, width = draw.choice(SIZES), draw.choice(SIZES)
    leading = (batch,) if draw.random() < 0.7 else (draw.choice(SIZES[:6]), draw.choice(SIZES[:6]))
    dtype = draw.choice(DTYPES)
    depth = draw.choice((1, 1, 2, 2, 3))
    widths = [width, *(draw.choice(SIZES) for _ in range(depth))]
    of_model = draw.getrandbits(32)

    def make_model() -> nn.Module:
        torch.manual_seed(of_model)
        again = Draw(of_model)
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [_dense(again, inputs, outputs), *_between(again, outputs)]
        head = nn.Linear(widths[-1], widths[-1]) if again.random() < 0.5 else Scale(widths[-1])
        return nn.Sequential(*layers, head).to(dtype)

    loss = _loss(draw, widths[-1])
    optimizer = draw.choice(OPTIMIZERS)
    if loss.options.get("reduction") == "sum":  # gradients grow with the number of terms
        optimizer = optimizer.but(lr=1e-3 / (math.prod(leading) * widths[-1]))
    if dtype.itemsize == 2 and "eps" in inspect.signature(optimizer.kind).parameters:
        optimizer = optimizer.but(eps=1e-2)  # the default is zero in float16
    batches: list[Batch] = []
    for _ in range(3):
        x = _inputs(draw, (*leading, width), generator).to(dtype)
        if loss.kind == "cross_entropy":
            t = torch.randint(0, widths[-1], leading, generator=generator)
        else:
            t = torch.randn((*leading, widths[-1]), generator=generator).to(dtype)
        batches.append({"x": x, "t": t})
    grouped = InGroups(optimizer) if draw.random() < 0.25 else optimizer
    return Program(seed, dtype, make_model, loss, grouped, batches, options_of(draw))
