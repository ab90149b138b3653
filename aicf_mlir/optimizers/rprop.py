"""torch.optim.Rprop."""

from __future__ import annotations

from dataclasses import dataclass

from aicf_mlir.ir.formula import Scalar, maximum, minimum, select
from aicf_mlir.optimizers.pointwise import PointwiseRule
from aicf_mlir.optimizers.rule import Flag, Setting, TorchClass


def combined(
    step: Scalar,
    lr: Scalar,
    eta_minus: Scalar,
    eta_plus: Scalar,
    step_size_min: Scalar,
    step_size_max: Scalar,
    **_: object,
) -> dict[str, Scalar]:
    """The scalars that each element reads: `first` is the step size of the first step, and NaN from the second on."""
    return {
        "first": select(step.equal(1.0), lr, float("nan")),
        "eta_minus": eta_minus,
        "eta_plus": eta_plus,
        "step_size_min": step_size_min,
        "step_size_max": step_size_max,
    }


def updated(
    p: Scalar,
    g: Scalar,
    prev: Scalar,
    step_size: Scalar,
    first: Scalar,
    eta_minus: Scalar,
    eta_plus: Scalar,
    step_size_min: Scalar,
    step_size_max: Scalar,
    *,
    maximize: bool,
) -> dict[str, Scalar]:
    """The step of one element: if the gradient has changed its sign there is none, and the next step counts as unchanged.

    The sign is that of the product in the type of the tensors, as in torch: in f16 it is 0 if both are small.
    """
    product = (g * prev).rounded(g.element)
    g, product = (-g, -product) if maximize else (g, product)
    eta = select(product > 0.0, eta_plus, select(product < 0.0, eta_minus, 1.0))
    size = select(first.is_nan(), step_size, first) * eta
    size = minimum(maximum(size, step_size_min), step_size_max)
    g = select(eta.equal(eta_minus), 0.0, g)
    sign = select(g > 0.0, 1.0, select(g < 0.0, g.of(-1.0), 0.0))  # of a NaN it is 0, in torch too
    return {"p": p - sign * size, "prev": g, "step_size": size}


@dataclass(frozen=True)
class Rprop(PointwiseRule):
    """torch.optim.Rprop."""

    KIND = "rprop"
    TORCH = (TorchClass("torch.optim", "Rprop"),)
    SETTINGS = (
        Setting("lr", {"lr": 1e-2}),
        Setting("etas", {"eta_minus": 0.5, "eta_plus": 1.2}),
        Setting("step_sizes", {"step_size_min": 1e-6, "step_size_max": 50.0}),
    )
    FLAGS = (Flag("maximize", "maximize"),)
    COMBINED = staticmethod(combined)
    UPDATED = staticmethod(updated)

    maximize: bool = False

    @property
    def states(self) -> tuple[str, ...]:
        return ("prev", "step_size")
