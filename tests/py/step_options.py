"""What random train steps ask for beside model, loss and optimizer."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from torch import nn

from aicf_mlir import ClipGradNorm


@dataclass(frozen=True)
class Options:
    """What else is asked of the step, and the same in torch."""

    clip_grad_norm: ClipGradNorm | None = None
    clip_grad_value: float | None = None

    def apply(self, model: nn.Module) -> None:
        """Clip the gradients of `model`."""
        parameters = [p for p in model.parameters() if p.grad is not None]
        if self.clip_grad_value is not None:
            nn.utils.clip_grad_value_(parameters, self.clip_grad_value)
        if (clip := self.clip_grad_norm) is not None:
            nn.utils.clip_grad_norm_(parameters, clip.max_norm, clip.norm_type)  # pyright: ignore[reportArgumentType]


def options_of(draw: random.Random) -> Options:
    """Most programs have none."""
    norm = ClipGradNorm(draw.choice((0.01, 1.0, 100.0)), draw.choice((2.0, 2.0, math.inf)))
    value = draw.choice((0.01, 0.3))
    return Options(norm if draw.random() < 0.3 else None, value if draw.random() < 0.15 else None)
