"""torch.optim.Adagrad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aicf_mlir.ir.formula import Scalar, sqrt
from aicf_mlir.optimizers.arithmetic import descent
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar, lr: Scalar, lr_decay: Scalar, eps: Scalar, weight_decay: Scalar, **_: object
) -> dict[str, Scalar]:
    """The scalars that each element reads."""
    return {"clr": lr / (1.0 + (step - 1.0) * lr_decay), "eps": eps, "weight_decay": weight_decay}


def updated(
    p: Scalar, g: Scalar, sum: Scalar, clr: Scalar, eps: Scalar, weight_decay: Scalar, *, maximize: bool
) -> dict[str, Scalar]:
    """A step of one element."""
    g = descent(p, g, weight_decay, maximize)
    sum = sum + g * g
    return {"p": p - clr * (g / (sqrt(sum) + eps)), "sum": sum}


@dataclass(frozen=True)
class Adagrad(PointwiseRule):
    """torch.optim.Adagrad. Torch makes its state with the optimizer, full of `initial_accumulator_value`."""

    KIND = "adagrad"
    TORCH = (TorchClass("torch.optim", "Adagrad"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-2}),
        Setting("lr_decay", {"lr_decay": 1e-2}),
        Setting("eps", {"eps": 1e-10}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    INITIAL: ClassVar = {"sum": "initial_accumulator_value"}
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("sum",)
