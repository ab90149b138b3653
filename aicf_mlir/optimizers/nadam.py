"""torch.optim.NAdam."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, power, select, sqrt
from aicf_mlir.optimizers.arithmetic import decay_of, decayed, lerp
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar,
    mu_product: Scalar,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    momentum_decay: Scalar,
    *,
    decoupled: bool,
    **_: object,
) -> dict[str, Scalar]:
    """The scalars that each element reads, and the product of the momenta of all steps."""

    def momentum(at: Scalar) -> Scalar:
        return beta1 * (1.0 - 0.5 * power(step.of(0.96), at * momentum_decay))

    mu, following = momentum(step), momentum(step + 1.0)
    product = select(step.equal(1.0), 1.0, mu_product).cast("f32") * mu.cast("f32")  # as torch keeps it
    wide = product.cast("f64")
    return {
        "mu_product": product,
        "of_gradient": lr * (1.0 - mu) / (1.0 - wide),
        "of_momentum": lr * following / (1.0 - wide * following),
        "one_minus_beta1": 1.0 - beta1,
        "beta2": beta2,
        "one_minus_beta2": 1.0 - beta2,
        "correction": 1.0 - power(beta2, step),
        "eps": eps,
        "decay": decay_of(lr, weight_decay, decoupled),
    }


def updated(
    p: Scalar,
    g: Scalar,
    exp_avg: Scalar,
    exp_avg_sq: Scalar,
    of_gradient: Scalar,
    of_momentum: Scalar,
    one_minus_beta1: Scalar,
    beta2: Scalar,
    one_minus_beta2: Scalar,
    correction: Scalar,
    eps: Scalar,
    decay: Scalar,
    *,
    decoupled: bool,
    maximize: bool,
) -> dict[str, Scalar]:
    """A step of one element."""
    p, g = decayed(p, g, decay, decoupled, maximize)
    exp_avg = lerp(exp_avg, g, one_minus_beta1)
    exp_avg_sq = beta2 * exp_avg_sq + one_minus_beta2 * g * g
    denominator = sqrt(exp_avg_sq / correction) + eps
    p = p - of_gradient * (g / denominator) - of_momentum * (exp_avg / denominator)
    return {"p": p, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq}


@dataclass(frozen=True)
class NAdam(PointwiseRule):
    """torch.optim.NAdam."""

    KIND = "nadam"
    TORCH = (TorchClass("torch.optim", "NAdam"),)
    SETTINGS = (
        Setting("lr", {"lr": 2e-3}),
        Setting("betas", {"beta1": 0.9, "beta2": 0.999}),
        Setting("eps", {"eps": 1e-8}),
        Setting("weight_decay", {"weight_decay": 1e-2}),
        Setting("momentum_decay", {"momentum_decay": 4e-3}),
    )
    FLAGS = (Flag("maximize", "maximize"), Flag("decoupled", "decoupled_weight_decay", optional=True))
    VECTORS = ("mu_product",)
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False
    decoupled: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")
