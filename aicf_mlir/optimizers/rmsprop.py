"""torch.optim.RMSprop."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, maximum, sqrt
from aicf_mlir.optimizers.arithmetic import descent, lerp
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    lr: Scalar,
    alpha: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    momentum: Scalar | None = None,
    **_: object,
) -> dict[str, Scalar]:
    """The scalars that each element reads."""
    rest = {} if momentum is None else {"momentum": momentum}
    return {
        "lr": lr,
        "alpha": alpha,
        "one_minus_alpha": 1.0 - alpha,
        "eps": eps,
        "weight_decay": weight_decay,
        **rest,
    }


def updated(
    p: Scalar,
    g: Scalar,
    square_avg: Scalar,
    lr: Scalar,
    alpha: Scalar,
    one_minus_alpha: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    momentum: Scalar | None = None,
    momentum_buffer: Scalar | None = None,
    grad_avg: Scalar | None = None,
    *,
    centered: bool,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    g = descent(p, g, weight_decay, maximize)
    states = {"square_avg": alpha * square_avg + one_minus_alpha * g * g}
    variance = states["square_avg"]
    if centered and grad_avg is not None:
        states["grad_avg"] = mean = lerp(grad_avg, g, one_minus_alpha)
        # Old averages are rounded to their type, and in f16 that of squares is often 0: no variance is less.
        variance = maximum(variance - mean * mean, 0.0)
    direction = g / (sqrt(variance) + eps)
    if momentum is not None and momentum_buffer is not None:
        states["momentum_buffer"] = direction = momentum * momentum_buffer + direction
    return {"p": p - lr * direction, **states}


@dataclass(frozen=True)
class RmsProp(PointwiseRule):
    """torch.optim.RMSprop."""

    KIND = "rmsprop"
    TORCH = (TorchClass("torch.optim", "RMSprop"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-2}),
        Setting("alpha", {"alpha": 0.99}),
        Setting("eps", {"eps": 1e-8}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
        Setting("momentum", {"momentum": 0.9}),
    )
    FLAGS = (Flag("momentum", "momentum"), Flag("centered", "centered"), Flag("maximize", "maximize"))
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    momentum: bool = False
    centered: bool = False
    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        kept = {"momentum_buffer": self.momentum, "grad_avg": self.centered}
        return ("square_avg", *(name for name, there in kept.items() if there))
