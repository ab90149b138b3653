"""Losses and their gradients on float64 arrays, as torch.nn.functional defines them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aicf_mlir.interpreters.numerics import Array

Inner = Callable[[Array], Array]
"""What a kernel has of values that it computes in between (`Arithmetic.inner`)."""


def mse_loss(y: Array, t: Array, reduction: str) -> Array:
    """The mean or sum of (y - t)²."""
    squares = np.square(y - t)
    return np.asarray(squares.sum() if reduction == "sum" else squares.sum() / squares.size)


def mse_grad(dloss: Array, y: Array, t: Array, reduction: str) -> Array:
    """The gradient with respect to y."""
    scale = 2.0 if reduction == "sum" else np.divide(2.0, y.size)
    return dloss * scale * (y - t)


def _target_distribution(target: Array, classes: int, ignore_index: int, label_smoothing: float) -> Array:
    """Rows of class weights: zero for an ignored target, NaN for one outside of the classes."""
    rows = np.zeros((target.size, classes))
    kept = target != ignore_index
    rows[kept] = label_smoothing / classes
    known = kept & (target >= 0) & (target < classes)
    rows[np.flatnonzero(known), target[known]] += 1.0 - label_smoothing
    rows[kept & ~known] = np.nan
    return rows


def _row_weight(target: Array, reduction: str, ignore_index: int) -> float:
    kept = np.count_nonzero(target != ignore_index)
    return 1.0 if reduction == "sum" else float(np.float64(1.0) / np.float64(kept))


def _log_softmax(logits: Array, inner: Inner) -> Array:
    """The total is a value in between: of a row that is all but sure it is 1, and a rounding of that is the whole loss."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(inner(np.exp(shifted).sum(axis=1, keepdims=True)))


def cross_entropy(
    logits: Array,
    target: Array,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    inner: Inner,
) -> Array:
    """
    The sum over rows of -log softmax(logits)[target], or its mean over targets that are not ignored (NaN for none).

    The smoothed loss is torch's: the loss times 1 - label_smoothing, plus label_smoothing times its mean over all classes. So
    with a smoothing of 1 a target whose probability is 0 gives NaN. Without smoothing the other classes do not count.
    """
    classes, kept = logits.shape[1], target != ignore_index
    known = (target >= 0) & (target < classes)
    logs = _log_softmax(logits, inner)
    losses = -logs[np.arange(target.size), np.where(known, target, 0)]
    if label_smoothing != 0.0:
        losses = (1.0 - label_smoothing) * losses - label_smoothing / classes * logs.sum(axis=1)
    total = np.where(known, losses, np.nan)[kept].sum()
    return np.asarray(total if reduction == "sum" else total / np.count_nonzero(kept))


def cross_entropy_grad(
    dloss: Array,
    logits: Array,
    target: Array,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    inner: Inner,
) -> Array:
    """The gradient with respect to the logits; in rows of ignored targets 0, or NaN where softmax is NaN."""
    weights = _target_distribution(target, logits.shape[1], ignore_index, label_smoothing)
    scale = dloss * _row_weight(target, reduction, ignore_index)
    softmax = np.exp(_log_softmax(logits, inner))
    return np.where((target != ignore_index)[:, None], scale * (softmax - weights), 0.0 * softmax)
