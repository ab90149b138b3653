"""Common parts of the formulas of several optimizers, in the scalar language."""

from __future__ import annotations

from aicf_mlir.ir.formula import Scalar, absolute, select


def descent(p: Scalar, g: Scalar, weight_decay: Scalar, maximize: bool) -> Scalar:
    """The gradient as it is followed down: of the negated objective to maximize it, with weight decay as in torch.optim.SGD."""
    g = -g if maximize else g
    return select(weight_decay.differs(0.0), g + weight_decay * p, g)


def decay_of(lr: Scalar, weight_decay: Scalar, decoupled: bool) -> Scalar:
    """The argument of `decayed`."""
    return 1.0 - lr * weight_decay if decoupled else weight_decay


def decayed(p: Scalar, g: Scalar, decay: Scalar, decoupled: bool, maximize: bool) -> tuple[Scalar, Scalar]:
    """The weight and the gradient under weight decay, `decoupled` as in torch.optim.AdamW."""
    if decoupled:
        return p * decay, -g if maximize else g
    return p, descent(p, g, decay, maximize)


def lerp(start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
    """torch.lerp: computed from the nearer end, so that a small `end` survives next to a large `start`."""
    near = absolute(weight) < 0.5
    return select(near, start, end) + select(near, weight, weight - 1.0) * (end - start)
