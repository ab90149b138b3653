"""reduce_sum, the losses and their gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_cases.case import DIMS, NON_FINITE, Array, Case, Maker
from kernel_cases.elementwise import grid

REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n,), (0,)) for n in DIMS), *(((n, m), (0,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)),
    *(((n, m), (1,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((1025, 33), (0,)),
    ((33, 1025), (1,)), ((100_003,), (0,)),
    ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (1, 2)), ((2, 3, 4, 5), (0, 1, 2, 3)),
    ((2, 3, 4, 5), ()),
    ((), ()), ((0,), (0,)), ((0, 3), (0,)), ((3, 0), (0,)), ((1, 5, 1, 7), (0, 1)),
    ((2, 2, 2, 2, 2, 2, 2, 2), (0, 2, 4, 6)),
    ((2, 2, 2, 2, 2, 2, 2, 2), (1, 3, 5, 7)), ((3, 129, 2), (1,)), ((64, 256), (0,)), ((300, 300), (0, 1)),
    ((5, 1), (1,)),
]  # fmt: skip


def reduce_sum(make: Maker) -> Iterator[Case]:
    for shape, dims in REDUCTIONS:
        kept = tuple(1 if i in dims else size for i, size in enumerate(shape))
        removed = tuple(size for i, size in enumerate(shape) if i not in dims)
        terms = math.prod(shape[i] for i in dims)
        for y, divisor in ((removed, 1.0), (kept, float(max(terms, 1)))):
            attrs: dict[str, Any] = {"dims": list(dims), "divisor": divisor}
            size = math.sqrt(terms) / divisor
            yield Case(
                f"normal {shape} {dims} {divisor}", [make.normal(*shape)], [make.out(*y)], attrs, scale=size
            )
        attrs = {"dims": list(dims)}
        yield Case(
            f"integers {shape} {dims}",
            [make.integers(*shape)],
            [make.out(*removed)],
            attrs,
            exact=terms < 10_000,
        )
        positive = np.abs(make.normal(*shape))  # rounding errors of one sign
        attrs = {"dims": list(dims), "divisor": float(max(terms, 1))}
        yield Case(f"positive {shape} {dims}", [positive], [make.out(*removed)], attrs)
    x = make.normal(40, 40)
    x[3, 4], x[5, 6], x[7, 8], x[7, 9] = np.nan, np.inf, np.inf, -np.inf
    for dim in (0, 1):
        yield Case(f"NaN and infinity {dim}", [x], [make.out(40)], {"dims": [dim]}, scale=math.sqrt(40))


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
