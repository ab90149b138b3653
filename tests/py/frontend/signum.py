"""Signum (arXiv:1802.04434), as one file of `aicf_mlir/optimizers` would hold it."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, absolute, maximum, select
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Setting, TorchClass


def combined(lr: Scalar, beta: Scalar, weight_decay: Scalar, **_: object) -> dict[str, Scalar]:
    """What each element reads."""
    return {"lr": lr, "decay": 1.0 - lr * weight_decay, "beta": beta, "one_minus_beta": 1.0 - beta}


def updated(
    p: Scalar,
    g: Scalar,
    average: Scalar,
    largest: Scalar,
    lr: Scalar,
    decay: Scalar,
    beta: Scalar,
    one_minus_beta: Scalar,
) -> dict[str, Scalar]:
    """A step of one element; `largest` is there to have a second state."""
    average = beta * average + one_minus_beta * g
    sign = select(average > 0.0, 1.0, select(average < 0.0, g.of(-1.0), 0.0))
    largest = maximum(absolute(g), largest)
    return {"p": p * decay - lr * sign, "average": average, "largest": largest}


@dataclass(frozen=True)
class Signum(PointwiseRule):
    """The rule."""

    KIND = "signum"
    TORCH = (TorchClass("__main__", "Signum"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-4}),
        Setting("momentum", {"beta": 0.9}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = ()
    COUNTS_IN_STATE = False
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    @property
    def states(self) -> tuple[str, ...]:
        return ("average", "largest")
