"""reduce_sum: every choice of dimensions, kept or removed; and divisors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_cases.case import DIMS, Case, Generator, Maker

REDUCTIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n,), (0,)) for n in DIMS), *(((n, m), (0,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)),
    *(((n, m), (1,)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((1025, 33), (0,)),
    ((33, 1025), (1,)), ((100_003,), (0,)), ((3, 70_001), (1,)), ((30_001, 2, 5), (0, 2)),
    ((20_001, 6), (0,)), ((16_384, 64), (0,)),
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


CASES: dict[str, Generator] = {"reduce_sum": reduce_sum}
