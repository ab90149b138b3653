"""torch.optim.Adamax."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, absolute, maximum, power
from aicf_mlir.optimizers.arithmetic import descent, lerp
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar, lr: Scalar, beta1: Scalar, beta2: Scalar, eps: Scalar, weight_decay: Scalar, **_: object
) -> dict[str, Scalar]:
    """The scalars that each element reads."""
    return {
        "clr": lr / (1.0 - power(beta1, step)),
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "eps": eps,
        "weight_decay": weight_decay,
    }


def updated(
    p: Scalar,
    g: Scalar,
    exp_avg: Scalar,
    exp_inf: Scalar,
    clr: Scalar,
    one_minus_beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    g = descent(p, g, weight_decay, maximize)
    exp_avg = lerp(exp_avg, g, one_minus_beta1)
    exp_inf = maximum(beta2 * exp_inf, absolute(g) + eps)
    return {"p": p - clr * (exp_avg / exp_inf), "exp_avg": exp_avg, "exp_inf": exp_inf}


@dataclass(frozen=True)
class Adamax(PointwiseRule):
    """torch.optim.Adamax."""

    KIND = "adamax"
    TORCH = (TorchClass("torch.optim", "Adamax"),)
    SETTINGS = (
        Setting("lr", {"lr": 2e-3}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.999}),
        Setting("eps", {"eps": 1e-8}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")
