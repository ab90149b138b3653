"""torch.optim.ASGD."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, maximum, power, select
from aicf_mlir.optimizers.arithmetic import descent
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar,
    eta: Scalar,
    mu: Scalar,
    lr: Scalar,
    lambd: Scalar,
    alpha: Scalar,
    t0: Scalar,
    weight_decay: Scalar,
    **_: object,
) -> dict[str, Scalar]:
    """The scalars that each element reads, and the rate and the weight of the average of the next step."""
    first = step.equal(1.0)
    rate = select(first, lr.cast("f32"), eta.cast("f32")).cast("f64")  # rounded, as torch keeps it
    return {
        "eta": lr / power(1.0 + lambd * lr * step, alpha),
        "mu": 1.0 / maximum(step - t0, 1.0),
        "rate": rate,
        "decay": 1.0 - lambd * rate,
        "weight": select(first, 1.0, mu),
        "weight_decay": weight_decay,
    }


def updated(
    p: Scalar,
    g: Scalar,
    ax: Scalar,
    rate: Scalar,
    decay: Scalar,
    weight: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element; `ax` is the average of its values."""
    g = descent(p, g, weight_decay, maximize)
    p = decay * p - rate * g
    return {"p": p, "ax": select(weight.equal(1.0), p, ax + (p - ax) * weight)}


@dataclass(frozen=True)
class Asgd(PointwiseRule):
    """torch.optim.ASGD."""

    KIND = "asgd"
    TORCH = (TorchClass("torch.optim", "ASGD"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-2}),
        Setting("lambd", {"lambd": 1e-4}),
        Setting("alpha", {"alpha": 0.75}),
        Setting("t0", {"t0": 1e6}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    VECTORS = ("eta", "mu")
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("ax",)
