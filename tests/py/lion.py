"""Lion (arXiv:2302.06675), as one file of `aicf_mlir/optimizers` would hold it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, select
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Setting, TorchClass


def combined(
    lr: Scalar, beta1: Scalar, beta2: Scalar, weight_decay: Scalar, **_: object
) -> dict[str, Scalar]:
    """What each element reads."""
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
) -> dict[str, Scalar]:
    """A step of one element."""
    direction = beta1 * exp_avg + one_minus_beta1 * g
    sign = select(direction > 0.0, 1.0, select(direction < 0.0, g.of(-1.0), 0.0))
    return {"p": p * decay - lr * sign, "exp_avg": beta2 * exp_avg + one_minus_beta2 * g}


@dataclass(frozen=True)
class Lion(PointwiseRule):
    """The rule."""

    KIND = "lion"
    TORCH = (TorchClass("__main__", "Lion"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-4}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.99}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = ()
    COUNTS_IN_STATE = False
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg",)
