"""Samples of losses and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from samples.sample import (
    PAIRS,
    RAGGED,
    Sample,
    classes,
    special,
    special_slowly,
    tensors,
)


def gradient(loss: Callable[..., Any], dloss: Any, y: Any, t: Any) -> Any:
    """The gradient of `dloss * loss(y, t)` with respect to y, by torch."""
    leaf = y.clone().requires_grad_()
    (result,) = torch.autograd.grad(loss(leaf, t), leaf, dloss)
    return result


def mse() -> list[Sample]:
    """Mean and sum over shapes; special values."""
    samples: list[Sample] = []
    for reduction in ("mean", "sum"):

        def build(y: Any, t: Any, reduction: str = reduction) -> Operation:
            return nn.MseLossOp(y, t, reduction)

        def loss(y: Any, t: Any, reduction: str = reduction) -> Any:
            return F.mse_loss(y, t, reduction=reduction)

        def build_grad(dloss: Any, y: Any, t: Any, reduction: str = reduction) -> Operation:
            return nn.MseLossGradOp(dloss, y, t, reduction)

        def grad(dloss: Any, y: Any, t: Any, loss: Any = loss) -> Any:
            return gradient(loss, dloss, y, t)

        for shape in RAGGED:
            samples.append(Sample(f"{reduction}-{shape}", tensors(shape, shape), build, loss))
            samples.append(Sample(f"{reduction}-{shape}", tensors("", shape, shape), build_grad, grad))
        pairs = {1: special, 2: special_slowly}
        samples.append(
            Sample(f"{reduction}-special", tensors("", PAIRS, PAIRS), build_grad, grad, pairs, smooth=False)
        )
    return samples


CROSS_ENTROPIES: tuple[tuple[str, int, float, tuple[int, ...]], ...] = (
    ("mean", -100, 0.0, ()),
    ("sum", -100, 0.0, ()),
    ("mean", -100, 0.1, (-100, 0)),
    ("sum", -1, 1.0, (-1, 4)),
    ("mean", 2, 0.3, (2, 2)),
    ("mean", -100, 0.0, (-100,) * 7),
    ("sum", -100, 0.1, (-100,) * 7),
)
"""Reduction, ignored index, label smoothing, and the first targets."""


def cross_entropy() -> list[Sample]:
    """Ignored rows, all of them ignored, label smoothing, one class, infinite logits."""
    samples: list[Sample] = []
    for options in CROSS_ENTROPIES:
        reduction, _, _, targets = options

        def build(y: Any, t: Any, options: Any = options) -> Operation:
            return nn.CrossEntropyOp(y, t, *options[:3])

        def loss(y: Any, t: Any, options: Any = options) -> Any:
            reduction, ignore_index, label_smoothing, _ = options
            return F.cross_entropy(
                y, t, reduction=reduction, ignore_index=ignore_index, label_smoothing=label_smoothing
            )

        def build_grad(dloss: Any, y: Any, t: Any, options: Any = options) -> Operation:
            return nn.CrossEntropyGradOp(dloss, y, t, *options[:3])

        def grad(dloss: Any, y: Any, t: Any, loss: Any = loss) -> Any:
            return gradient(loss, dloss, y, t)

        name = "-".join(str(part) for part in options)
        smooth = not (reduction == "mean" and targets == (-100,) * 7)
        some = classes(5, *targets)
        samples += [
            Sample(name, ("7x5xf32", "7xi64"), build, loss, {1: some}, smooth),
            Sample(name, ("f32", "7x5xf32", "7xi64"), build_grad, grad, {2: some}),
        ]
        if not targets:
            one = {1: classes(1)}
            samples.append(Sample(f"{name}-one-class", ("3x1xf32", "3xi64"), build, loss, one))
    return samples
