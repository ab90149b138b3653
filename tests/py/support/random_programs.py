"""Random train steps: model, batches, loss and optimizer from one seed; `repr` of a program shows them."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from models import OPTIMIZERS, Batch, MakeOptimizer, to_device
from random_layers import Draw, Scale, between, dense
from step_options import NESTINGS, Options, loss_of_nested, options_of
from torch import nn
from written_optimizers import RIGHT

from aicf_mlir.step.compile import compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep

SIZES = (1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 127, 129)
"""One below, at and above what kernels are tiled and vectorised by."""

STEPS_EACH = 6
"""One random program in so many is a train step."""

DTYPES = (*[torch.float32] * 16, torch.float64, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Loss:
    """A loss of (model, batch) by name and options, for batches nested in one way, with outputs or without."""

    kind: str
    options: dict[str, Any]
    nesting: str = "flat"
    tells: bool = False

    def __call__(self, model: Any, batch: Any) -> Any:
        return loss_of_nested(self.value, self.nesting, self.tells, model, batch)

    def value(self, y: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if self.kind == "cross_entropy":
            return nn.functional.cross_entropy(y.flatten(0, -2), t.flatten(), **self.options)
        if self.kind == "mse":
            return nn.functional.mse_loss(y, t, **self.options)
        return (y * t).mean() + 0.5 * (y * y).sum() / y.numel()


@dataclass(frozen=True)
class Program:
    """One train step to be compiled, with the batches of three steps to run it on."""

    seed: int
    dtype: torch.dtype
    make_model: Callable[[], nn.Module]
    loss: Loss
    optimizer: MakeOptimizer
    steps: list[list[Batch]]
    """Of each step its micro-batches, flat."""
    options: Options
    evaluates: bool
    """Whether an evaluation step runs beside it."""
    saves: bool
    """Whether it goes on from a file behind the second step."""

    @property
    def sizes(self) -> int:
        """Of how many sizes the batches are."""
        return len({parts[0]["x"].shape for parts in self.steps})

    @property
    def unit(self) -> float:
        """In the last place of 1, of what is computed in."""
        return torch.finfo(self.options.low or self.dtype).eps

    def nested(self, batch: Batch) -> Any:
        """A batch as the loss takes it."""
        return NESTINGS[self.loss.nesting][0](batch)

    def given(self, number: int, device: str) -> Any:
        """What the compiled step takes for one of the steps."""
        parts = [self.nested(to_device(batch, device)) for batch in self.steps[number]]
        return parts[0] if self.options.accumulate is None else parts

    def compiled(self, model: nn.Module, optimizer: torch.optim.Optimizer, device: str) -> CompiledTrainStep:
        """The step, for the sizes of the first batch, or of all where further ones may not come unannounced."""
        named = self.steps[:1] if self.options.further_sizes else self.steps[: self.sizes]
        return compile_train_step(
            model,
            optimizer,
            loss_fn=self.loss,
            example=[self.nested(parts[0]) for parts in named],
            device=device,
            **self.options.arguments,
        )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {list(t.shape)}" for name, t in self.steps[0][0].items())
        second = list(self.steps[1][0]["x"].shape)
        return (
            f"{self.make_model()!r}\n{self.loss}, {self.optimizer}, {self.dtype}, {shapes}, second x {second}\n"
            f"{self.options}, evaluates={self.evaluates}, saves={self.saves}"
        )


@dataclass(frozen=True)
class InGroups:
    """An optimizer whose parameters lie in two groups, the second with a tenth of the lr."""

    config: Any

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        parameters = [p for p in model.parameters() if p.requires_grad]
        groups = [{"params": parameters[::2]}, {"params": parameters[1::2]}]
        made = self.config.of([g for g in groups if g["params"]])
        for group in made.param_groups[1:]:
            group["lr"] /= 10
        return made

    def __str__(self) -> str:
        return f"{self.config} in two groups"


@dataclass(frozen=True)
class WrittenConfig:
    """An optimizer with a step of its own, with other values of some of its options."""

    name: str
    options: dict[str, Any]

    def of(self, parameters: Any) -> torch.optim.Optimizer:
        """One for these parameters or groups."""
        made = RIGHT[self.name](parameters)
        for group in made.param_groups:
            group.update({name: value for name, value in self.options.items() if self.is_number(group, name)})
        return made

    @staticmethod
    def is_number(group: dict[str, Any], name: str) -> bool:
        """Whether there is such an option, of one value; that `eps` of Adafactor are two."""
        return isinstance(group.get(name), float)

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        return self.of(model.parameters())

    def but(self, **options: Any) -> WrittenConfig:
        """The same with other values of these options, where it has them."""
        return WrittenConfig(self.name, {**self.options, **options})

    def __str__(self) -> str:
        return f"{self.name} of written_optimizers {self.options or ''}"


def loss_from(draw: Draw, classes: int) -> Loss:
    """A loss of so many classes, or of so many numbers."""
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


def inputs_of(draw: Draw, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
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
            layers += [dense(again, inputs, outputs), *between(again, outputs)]
        head = nn.Linear(widths[-1], widths[-1]) if again.random() < 0.5 else Scale(widths[-1])
        return nn.Sequential(*layers, head).to(dtype)

    loss = loss_from(draw, widths[-1])
    optimizer = draw.choice(OPTIMIZERS)
    batches = [_batch(draw, loss, (*leading, width), widths[-1], dtype, generator) for _ in range(3)]
    grouped = draw.random() < 0.25
    options = options_of(draw)
    if draw.random() < 0.2:
        optimizer = WrittenConfig(draw.choice(list(RIGHT)), {})
    if loss.options.get("reduction") == "sum":  # gradients grow with the number of terms
        optimizer = optimizer.but(lr=1e-3 / (math.prod(leading) * widths[-1]))
    if dtype.itemsize == 2 and (isinstance(optimizer, WrittenConfig) or has_eps(optimizer.kind)):
        optimizer = optimizer.but(eps=1e-2)  # the default is zero in float16
    loss = replace(
        loss,
        nesting=draw.choice(("flat", "flat", *NESTINGS)),
        tells=bool(options.metrics) or draw.random() < 0.2,
    )
    other = draw.choice(SIZES) if draw.random() < 0.25 else leading[0]
    if other != leading[0] and options.accumulate is None and draw.random() < 0.7:
        options = replace(options, further_sizes=1)
    leadings = (leading, (other, *leading[1:]), leading)
    steps = [
        [
            batches[number]
            if part == 0 and of == leading
            else _batch(draw, loss, (*of, width), widths[-1], dtype, generator)
            for part in range(options.parts)
        ]
        for number, of in enumerate(leadings)
    ]
    made = InGroups(optimizer) if grouped else optimizer
    evaluates, saves = draw.random() < 0.2, draw.random() < 0.2
    if dtype is torch.float32 and draw.random() < 0.15:
        several = (
            options.accumulate is not None
        )  # f16 overflows at another scale than where each loss is divided first
        options = replace(options, precision="bf16" if several else draw.choice(("bf16", "f16")))
    return Program(seed, dtype, make_model, loss, made, steps, options, evaluates, saves)


def has_eps(kind: type[torch.optim.Optimizer]) -> bool:
    """Whether an optimizer divides by something that eps keeps from zero."""
    return "eps" in inspect.signature(kind).parameters


def _batch(
    draw: Draw,
    loss: Loss,
    shape: tuple[int, ...],
    classes: int,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> Batch:
    x = inputs_of(draw, shape, generator).to(dtype)
    if loss.kind == "cross_entropy":
        return {"x": x, "t": torch.randint(0, classes, shape[:-1], generator=generator)}
    return {"x": x, "t": torch.randn((*shape[:-1], classes), generator=generator).to(dtype)}
