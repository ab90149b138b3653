"""torch.optim.Adadelta."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, sqrt
from aicf_mlir.optimizers.arithmetic import descent
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(lr: Scalar, rho: Scalar, eps: Scalar, weight_decay: Scalar, **_: object) -> dict[str, Scalar]:
    """The scalars that each element reads."""
    return {"lr": lr, "rho": rho, "one_minus_rho": 1.0 - rho, "eps": eps, "weight_decay": weight_decay}


def updated(
    p: Scalar,
    g: Scalar,
    square_avg: Scalar,
    acc_delta: Scalar,
    lr: Scalar,
    rho: Scalar,
    one_minus_rho: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    g = descent(p, g, weight_decay, maximize)
    square_avg = rho * square_avg + one_minus_rho * g * g
    delta = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * g
    return {
        "p": p - lr * delta,
        "square_avg": square_avg,
        "acc_delta": rho * acc_delta + one_minus_rho * delta * delta,
    }


@dataclass(frozen=True)
class Adadelta(PointwiseRule):
    """torch.optim.Adadelta."""

    KIND = "adadelta"
    TORCH = (TorchClass("torch.optim", "Adadelta"),)
    SETTINGS = (
        Setting("lr", {"lr": 1.0}),
        Setting("rho", {"rho": 0.9}),
        Setting("eps", {"eps": 1e-6}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")
