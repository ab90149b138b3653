"""Samples of arithmetic and activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from samples.sample import (
    ALL,
    PAIRS,
    RAGGED,
    Sample,
    classes,
    normal,
    special,
    special_slowly,
    tensors,
    unit,
)

BROADCASTS = (
    ("7x5", "7x5"),
    ("7x5", "5"),
    ("7x1", "5"),
    ("", "3x4"),
    ("2x3x4", "3x1"),
    ("1", "1x1"),
    ("", ""),
    ("0x3", "3"),
)


def large(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Integers up to where float64 has them all."""
    return np.resize(np.array([2**52, -5, 0, -(2**52)]), shape)


def elementwise() -> list[Sample]:
    """Arithmetic over broadcast shapes and all pairs of special values."""
    rows: list[tuple[Callable[..., Operation], Callable[..., Any]]] = [
        (nn.AddOp, torch.add),
        (nn.SubOp, torch.sub),
        (nn.MulOp, torch.mul),
        (nn.DivOp, torch.div),
    ]
    samples = [Sample("neg", tensors(shape), nn.NegOp, torch.neg) for shape in RAGGED]
    samples.append(Sample("neg-special", tensors(ALL), nn.NegOp, torch.neg, {0: special}, smooth=False))
    counts = {0: large, 1: classes(7)}
    for build, reference in rows[:2]:
        samples.append(Sample("i64", ("3x5xi64", "5xi64"), build, reference, counts))
        samples.append(Sample("i32", ("4xi32", "4xi32"), build, reference))
    for build, reference in rows:
        samples += [Sample(f"{a},{b}", tensors(a, b), build, reference) for a, b in BROADCASTS]
        pairs = {0: special, 1: special_slowly}
        samples.append(Sample("special", tensors(PAIRS, PAIRS), build, reference, pairs, smooth=False))
    return samples


def activations() -> list[Sample]:
    """Each activation and its gradient over shapes and special values."""
    aten = torch.ops.aten

    def tanh_gelu(x: Any) -> Operation:
        return nn.GeluOp(x, approximate="tanh")

    def tanh_gelu_grad(dy: Any, x: Any) -> Operation:
        return nn.GeluGradOp(dy, x, approximate="tanh")

    forward: list[tuple[Callable[..., Operation], Callable[..., Any]]] = [
        (nn.ReluOp, torch.relu),
        (nn.GeluOp, F.gelu),
        (tanh_gelu, lambda x: F.gelu(x, approximate="tanh")),
        (nn.SiluOp, F.silu),
        (nn.TanhOp, torch.tanh),
        (nn.SigmoidOp, torch.sigmoid),
        (nn.SoftmaxOp, lambda x: torch.softmax(x, -1)),
    ]
    backward: list[tuple[Callable[..., Operation], Callable[..., Any]]] = [
        (nn.ReluGradOp, lambda dy, y: aten.threshold_backward(dy, y, 0)),
        (nn.GeluGradOp, lambda dy, x: aten.gelu_backward(dy, x)),
        (tanh_gelu_grad, lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh")),
        (nn.SiluGradOp, aten.silu_backward),
        (nn.TanhGradOp, aten.tanh_backward),
        (nn.SigmoidGradOp, aten.sigmoid_backward),
        (nn.SoftmaxGradOp, lambda dy, y: aten._softmax_backward_data(dy, y, -1, dy.dtype)),
    ]
    samples: list[Sample] = []
    for build, reference in forward:
        samples += [Sample(shape or "0-d", tensors(shape), build, reference) for shape in RAGGED]
        samples.append(Sample("special", tensors(ALL), build, reference, {0: special}, smooth=False))
    for shape, fill in ((f"{ALL}x3", special), (f"5x{ALL}", special_slowly), ("3x1300", normal)):
        samples.append(Sample(shape, tensors(shape), *forward[-1], {0: fill}, smooth=False))
        samples.append(Sample(shape, tensors(shape, shape), *backward[-1], {1: fill}, smooth=False))
    for build, reference in backward:
        samples += [
            Sample(
                shape or "0-d",
                tensors(shape, shape),
                build,
                reference,
                {1: unit},
                units=20 if build in (nn.GeluGradOp, tanh_gelu_grad) else 1,
            )
            for shape in RAGGED
        ]
        in_range = build is not tanh_gelu_grad  # its x² is infinite from 2e19 on
        fills = {1: special}
        samples.append(Sample("special", tensors(ALL, ALL), build, reference, fills, False, in_range))
    return samples
