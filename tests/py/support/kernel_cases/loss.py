"""The losses and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_cases.case import DIMS, NON_FINITE, Array, Case, Generator, Maker
from kernel_cases.eltwise import grid

MSE_SHAPES = [*((n,) for n in DIMS), (), (64, 8), (33, 65), (7, 3, 11), (300, 301)]
REDUCTION_NAMES = ("mean", "sum")


def mse_loss(make: Maker) -> Iterator[Case]:
    for shape, reduction in itertools.product([*MSE_SHAPES, (0,)], REDUCTION_NAMES):
        attrs = {"reduction": reduction}
        damp = 1.0 if reduction == "mean" else 0.25  # keeps the sum inside of f16
        y, t = (make.cast(make.normal(*shape).astype(np.float64) * damp) for _ in range(2))
        units = 1.0 if make.dtype == "f16" else 0.0  # whose squares are rounded
        yield Case(f"normal {shape} {reduction}", [y, t], [make.out()], attrs, inner_units=units)
        if math.prod(shape) < 256:
            values = [make.integers(*shape), make.integers(*shape)]
            yield Case(
                f"integers {shape} {reduction}",
                values,
                [make.out()],
                attrs,
                exact=reduction == "sum" and math.prod(shape) < 64,
            )
    for value in NON_FINITE:
        y = make.normal(9)
        y[4] = value
        yield Case(f"with {value}", [y, make.normal(9)], [make.out()])


def mse_grad(make: Maker) -> Iterator[Case]:
    for shape, reduction in itertools.product(MSE_SHAPES, REDUCTION_NAMES):
        dloss = make.cast(1.0 if reduction == "mean" else -0.75)
        values = [dloss, make.normal(*shape), make.normal(*shape)]
        yield Case(f"normal {shape} {reduction}", values, [make.out(*shape)], {"reduction": reduction})
    yield Case(
        "no elements", [make.cast(1.0), make.normal(0), make.normal(0)], [make.out(0)], {"reduction": "sum"}
    )
    special = make.special()
    values = [make.cast(1.0), *grid(special, special)]
    yield Case("special values", values, [make.out(special.size**2)], {"reduction": "sum"}, each=True)


def _classification(make: Maker) -> Iterator[tuple[str, Array, Array, dict[str, Any]]]:
    random = make.random
    sizes = [(1, 1), (1, 10), (64, 10), (3, 2), (17, 33), (65, 129), (2, 1000), (0, 5), (31, 1)]
    for (rows, classes), reduction, smoothing in itertools.product(sizes, REDUCTION_NAMES, (0.0, 0.1, 1.0)):
        target = random.integers(0, classes, rows)
        attrs = {"reduction": reduction, "label_smoothing": smoothing}
        yield f"{rows}x{classes} {reduction} {smoothing}", make.normal(rows, classes), target, attrs
    for smoothing in (0.0, 0.2, 1.0):
        attrs = {"label_smoothing": smoothing}
        target = np.array([0, -100, 2, -100, 1])
        yield f"ignored {smoothing}", make.normal(5, 3), target, attrs
        yield f"ignored 1 {smoothing}", make.normal(5, 3), target.clip(0), attrs | {"ignore_index": 1}
        yield f"i32 {smoothing}", make.normal(5, 3), target.astype(np.int32), attrs
        yield f"all ignored {smoothing}", make.normal(2, 3), np.array([-100, -100]), attrs
        yield (
            f"outside {smoothing}",
            make.normal(4, 3),
            np.array([0, 3, -1, 2**40]),
            attrs | {"reduction": "sum"},
        )
        yield (
            f"large logits {smoothing}",
            make.cast([[900.0, -900.0, 0.0], [1e4, 1e4, 1e4]]),
            np.array([0, 1]),
            attrs,
        )
        logits = make.normal(5, 3)
        logits[0, 1], logits[1, 2], logits[2, 0], logits[3] = np.nan, np.inf, -np.inf, -np.inf
        yield f"not finite {smoothing}", logits, np.array([0, 1, 1, 0, 1]), attrs
        for row in range(5):
            yield f"not finite {smoothing} row {row}", logits[row : row + 1].copy(), np.array([1]), attrs


def cross_entropy(make: Maker) -> Iterator[Case]:
    for label, logits, target, attrs in _classification(make):
        yield Case(label, [logits, target], [make.out()], attrs, scale=1.0)


def cross_entropy_grad(make: Maker) -> Iterator[Case]:
    for label, logits, target, attrs in _classification(make):
        for dloss in (1.0, -0.5):
            outputs = [make.out(*logits.shape)]
            yield Case(
                f"{label} {dloss}", [make.cast(dloss), logits, target], outputs, attrs, each="finite" in label
            )


CASES: dict[str, Generator] = {
    "mse_loss": mse_loss,
    "mse_grad": mse_grad,
    "cross_entropy": cross_entropy,
    "cross_entropy_grad": cross_entropy_grad,
}
