"""aicf_mlir.optim.Lion (arXiv:2302.06675)."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, select
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    lr: Scalar, beta1: Scalar, beta2: Scalar, weight_decay: Scalar, **_: object
) -> dict[str, Scalar]:
    """The scalars that each element reads."""
    return {
        "lr": lr,
        "decay": 1.0 - lr * weight_decay,
        "beta1": beta1,
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
    }


def updated(
    p: Scalar,
    g: Scalar,
    exp_avg: Scalar,
    lr: Scalar,
    decay: Scalar,
    beta1: Scalar,
    one_minus_beta1: Scalar,
    beta2: Scalar,
    one_minus_beta2: Scalar,
    *,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    g = -g if maximize else g
    direction = exp_avg * beta1 + g * one_minus_beta1
    sign = select(
        direction > 0.0, 1.0, select(direction < 0.0, g.of(-1.0), 0.0)
    )  # of a NaN it is 0, in torch too
    return {"p": p * decay - lr * sign, "exp_avg": exp_avg * beta2 + g * one_minus_beta2}


@dataclass(frozen=True)
class LionRule(PointwiseRule):
    """Lion, whose class is ours: torch has none."""

    KIND = "lion"
    TORCH = (TorchClass("aicf_mlir.optim", "Lion"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-4}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.99}),
        Setting("weight_decay", {"weight_decay": 0.1}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    COUNTS_IN_STATE = False
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg",)
