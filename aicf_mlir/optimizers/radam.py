"""torch.optim.RAdam."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, power, select, sqrt
from aicf_mlir.optimizers.arithmetic import decay_of, decayed, lerp
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    decoupled: bool,
    **_: object,
) -> dict[str, Scalar]:
    """The scalars that each element reads: `rectified` is 0 until the variance is known well enough (arXiv:1908.03265)."""
    power_of_beta2 = power(beta2, step)
    correction = 1.0 - power_of_beta2
    longest = 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * step * power_of_beta2 / correction
    rectification = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
    return {
        "step_size": lr / (1.0 - power(beta1, step)),
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
        "eps": eps,
        "rectified": select(length > 5.0, sqrt(correction * rectification), 0.0),
        "decay": decay_of(lr, weight_decay, decoupled),
    }


def updated(
    p: Scalar,
    g: Scalar,
    exp_avg: Scalar,
    exp_avg_sq: Scalar,
    step_size: Scalar,
    one_minus_beta1: Scalar,
    beta2: Scalar,
    one_minus_beta2: Scalar,
    eps: Scalar,
    rectified: Scalar,
    decay: Scalar,
    *,
    decoupled: bool,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    p, g = decayed(p, g, decay, decoupled, maximize)
    exp_avg = lerp(exp_avg, g, one_minus_beta1)
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    adapted = select(rectified > 0.0, rectified / (sqrt(exp_avg_sq) + eps), 1.0)
    return {"p": p - step_size * exp_avg * adapted, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}


@dataclass(frozen=True)
class RAdam(PointwiseRule):
    """torch.optim.RAdam."""

    KIND = "radam"
    TORCH = (TorchClass("torch.optim", "RAdam"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-3}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.999}),
        Setting("eps", {"eps": 1e-8}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("maximize", "maximize"), Flag("decoupled", "decoupled_weight_decay", optional=True))
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False
    decoupled: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")
