"""What random train steps ask for beside model, loss and optimizer."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from models import Batch

from aicf_mlir import ClipGradNorm, LossScale

NESTINGS: Mapping[str, tuple[Callable[[Batch], Any], Callable[[Any], Batch]]] = {
    "flat": (dict, dict),
    "tuple": (lambda b: (b["x"], b["t"]), lambda n: {"x": n[0], "t": n[1]}),
    "list": (lambda b: [{"x": b["x"]}, b["t"]], lambda n: {"x": n[0]["x"], "t": n[1]}),
    "dictionaries": (
        lambda b: {"t": b["t"], "inputs": {"x": (b["x"],)}},
        lambda n: {"x": n["inputs"]["x"][0], "t": n["t"]},
    ),
}
"""How a batch is nested, and read again."""


def loss_of_nested(
    value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    nesting: str,
    tells: bool,
    model: Any,
    batch: Any,
) -> Any:
    """`value` of what the model makes of a batch that is nested in one way; with outputs, if it `tells`."""
    entries = NESTINGS[nesting][1](batch)
    y, t = model(entries["x"]), entries["t"]
    loss = value(y, t)
    return (loss, told(y, t)) if tells else loss


def told(y: torch.Tensor, t: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs beside a loss: of elements, sums and extremes, of whole numbers and booleans."""
    return {
        "whole": y,
        "rows": y.sum(-1),
        "mean": y.mean(),
        "top": y.detach().max(),
        "count": (t > 0).sum(),
        "any": (t > 0).any(),
    }


METRICS: Mapping[str, tuple[str, ...]] = {
    "mean": ("mean", "sum", "max", "min"),
    "top": ("mean", "max", "min"),
    "count": ("sum", "mean", "max", "min"),
    "any": ("sum", "max"),
}
"""Outputs that are gathered, and how."""


@dataclass(frozen=True)
class Options:
    """What else is asked of the step, and the same in torch."""

    clip_grad_norm: ClipGradNorm | None = None
    clip_grad_value: float | None = None
    accumulate: int | None = None
    loss_scale: LossScale | float | str | None = None
    ema: float | None = None
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    further_sizes: int = 0
    precision: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Those of compile_train_step, where they are not what they are by default."""
        return {name: value for name, value in vars(self).items() if value != getattr(Options, name, {})}

    @property
    def is_writable(self) -> bool:
        """Whether a loop body can say all of it by itself."""
        return self.accumulate is None and self.loss_scale is None and self.ema is None

    @property
    def low(self) -> torch.dtype | None:
        """What `precision` computes in, if it is less than the model is written in."""
        return {"bf16": torch.bfloat16, "f16": torch.float16}.get(self.precision or "")

    def autocast(self, device: str) -> torch.autocast:
        """Around model and loss in torch; its rules are others on each device."""
        return torch.autocast(device, self.low or torch.bfloat16, enabled=self.low is not None)

    @property
    def parts(self) -> int:
        """How many micro-batches a step has."""
        return self.accumulate or 1

    @property
    def scale(self) -> LossScale | None:
        """`loss_scale` in full."""
        if self.loss_scale == "dynamic" or (self.loss_scale is None and self.precision == "f16"):
            return LossScale()
        if isinstance(self.loss_scale, float):
            return LossScale(self.loss_scale, 1.0, 1.0)
        return self.loss_scale if isinstance(self.loss_scale, LossScale) else None

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.arguments.items()) or "no options"


SCALES = (256.0, 0.37, "dynamic", LossScale(1024.0, 1.5, 0.3, 2), LossScale(64.0, 2.0, 0.5, 1))


def options_of(draw: random.Random) -> Options:
    """Most programs have none of one kind, few have none at all."""
    norm = ClipGradNorm(draw.choice((0.01, 1.0, 100.0)), draw.choice((2.0, 2.0, math.inf)))
    value = draw.choice((0.01, 0.3))
    clips, limits = draw.random() < 0.3, draw.random() < 0.15
    gathered = {name: draw.choice(kinds) for name, kinds in METRICS.items() if draw.random() < 0.6}
    return Options(
        norm if clips else None,
        value if limits else None,
        draw.choice((None, None, None, 1, 2, 3)),
        draw.choice(SCALES) if draw.random() < 0.3 else None,
        draw.choice((0.0, 0.5, 0.9, 0.999)) if draw.random() < 0.25 else None,
        gathered if draw.random() < 0.3 else {},
    )
