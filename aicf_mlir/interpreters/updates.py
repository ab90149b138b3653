"""Optimizer updates of one tensor on float64 arrays: torch's single-tensor formulas."""

from __future__ import annotations

import numpy as np

from aicf_mlir.interpreters.numerics import Array, overflowing


def advance(step: Array) -> Array:
    """One more step, for each parameter of a group."""
    return step + 1.0


def inverse_bias_correction(beta: Array, steps: Array, pin: Array) -> Array:
    """1 / (1 - beta^steps) for each parameter of a group, or the pinned value for all where it is not NaN."""
    return np.where(np.isnan(pin), 1.0 / (1.0 - beta**steps), pin)


def lerp(start: Array, end: Array, weight: Array) -> Array:
    """torch.lerp: computed from the nearer end, so that a small `end` survives beside a large `start`."""
    if np.abs(weight) < 0.5:
        return start + weight * (end - start)
    return end - (end - start) * (1.0 - weight)


def sgd(
    p: Array,
    g: Array,
    lr: Array,
    weight_decay: Array,
    buf: Array | None = None,
    momentum: Array | float = 0.0,
    dampening: Array | float = 0.0,
    step: Array | None = None,
    *,
    nesterov: bool = False,
    maximize: bool = False,
) -> tuple[Array, Array | None]:
    """The new parameter and momentum buffer. `step` counts its steps with this; in the first, the buffer is `g`."""
    if maximize:
        g = -g
    if weight_decay != 0.0:
        g = g + weight_decay * p
    if buf is None or step is None:
        return p - lr * g, None
    buf = g if step == 1.0 else momentum * buf + (1.0 - dampening) * g
    direction = g + momentum * buf if nesterov else buf
    return p - lr * direction, buf


def adam(
    p: Array,
    g: Array,
    m: Array,
    v: Array,
    vmax: Array | None,
    lr: Array,
    beta1: Array,
    beta2: Array,
    eps: Array,
    weight_decay: Array,
    bc1_inv: Array,
    bc2_inv: Array,
    *,
    element: str,
    decoupled: bool = False,
    maximize: bool = False,
) -> tuple[Array, Array, Array, Array | None]:
    """The new parameter, first and second moment, and maximum of the latter (amsgrad).

    A square may overflow the type that tensors of `element` are computed in; the parameter then stays, as in torch.
    """
    if maximize:
        g = -g
    if decoupled:
        p = p * (1.0 - lr * weight_decay)
    elif weight_decay != 0.0:
        g = g + weight_decay * p
    m = lerp(m, g, 1.0 - beta1)
    v = overflowing(beta2 * v + (1.0 - beta2) * g * g, element)
    if vmax is not None:
        vmax = np.maximum(vmax, v)
    denominator = np.sqrt(v if vmax is None else vmax) * np.sqrt(bc2_inv) + eps
    return p - lr * bc1_inv * m / denominator, m, v, vmax
