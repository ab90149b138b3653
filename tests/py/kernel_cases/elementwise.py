"""Binary ops with broadcasting, unary ops, activation gradients, bias_add."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from kernel_cases.case import DIMS, NON_FINITE, Array, Case, Maker

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid")
SHAPES = [
    *((n,) for n in DIMS),
    (),
    (0,),
    (3, 0, 2),
    (17, 64),
    (5, 3, 2),
    (2, 1, 3, 1, 2, 1, 2, 2),
    (128, 512),
]
BROADCASTS = [
    ((4, 8), (8,)), ((4, 8), ()), ((), (4, 8)), ((4, 1), (1, 8)), ((3, 1, 5), (4, 1)), ((2, 3, 4), (3, 1)),
    ((1,), (1, 1, 1)),
    ((33, 64), (33, 1)), ((2, 1, 2, 1, 2), (1, 3, 1, 3, 1)), ((0, 4), (1, 4)), ((0, 1), (4,)),
    ((65, 127), (1, 127)),
    ((1, 2, 1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1, 2, 1)), ((7, 1, 64), (7, 9, 64)),
]  # fmt: skip


def unary(make: Maker) -> Iterator[Case]:
    for shape in SHAPES:
        yield Case(f"normal {shape}", [make.normal(*shape)], [make.out(*shape)])
    special = make.special()
    yield Case("special values", [special], [make.out(*special.shape)], each=True)
    padded = np.concatenate([special, special, special, special])  # a length that vectorised kernels take
    yield Case("special values, vectorised", [padded], [make.out(*padded.shape)], each=True)


def grid(left: Array, right: Array) -> list[Array]:
    """Every value of the one with every value of the other."""
    return [np.ascontiguousarray(values.ravel()) for values in np.meshgrid(left, right)]


def pairs(make: Maker, shapes: Sequence[tuple[int, ...]]) -> Iterator[Case]:
    for shape in shapes:
        yield Case(f"normal {shape}", [make.normal(*shape), make.normal(*shape)], [make.out(*shape)])
        yield Case(f"integers {shape}", [make.integers(*shape), make.integers(*shape)], [make.out(*shape)])


def binary(make: Maker) -> Iterator[Case]:
    yield from pairs(make, SHAPES)
    for left, right in BROADCASTS:
        shape = np.broadcast_shapes(left, right)
        yield Case(f"normal {left} {right}", [make.normal(*left), make.normal(*right)], [make.out(*shape)])
        yield Case(
            f"integers {left} {right}",
            [make.integers(*left), make.integers(*right)],
            [make.out(*shape)],
            exact=True,
        )
    special = make.special()
    values = grid(special, special)
    yield Case("special values", values, [make.out(*values[0].shape)], each=True)
    column, n = special.reshape(-1, 1), special.size
    yield Case("special values, broadcast", [column, special], [make.out(n, n)], each=True)


def special_gradients(make: Maker) -> Iterator[list[Array]]:
    """(dy, saved): dy is at most 1, the scale of allowed errors, or infinite where no slope underflows."""
    yield grid(make.cast([0.0, -0.0, 1e-40, 0.5, 1.0, -1.0, math.nan]), make.special())
    yield grid(make.cast(NON_FINITE), make.cast([0.0, 1.0, -1.0, 3.0, -3.0, *NON_FINITE]))


def backward(make: Maker) -> Iterator[Case]:
    yield from pairs(make, SHAPES)
    for i, values in enumerate(special_gradients(make)):
        yield Case(f"special values {i}", values, [make.out(*values[0].shape)], each=True)


def bias_add(make: Maker) -> Iterator[Case]:
    for shape in [s for s in SHAPES if s] + [(m, n) for m, n in zip(DIMS, reversed(DIMS), strict=True)]:
        yield Case(f"normal {shape}", [make.normal(*shape), make.normal(shape[-1])], [make.out(*shape)])
        yield Case(
            f"integers {shape}",
            [make.integers(*shape), make.integers(shape[-1])],
            [make.out(*shape)],
            exact=True,
        )
    special = make.special()
    n = special.size
    rows = np.ascontiguousarray(np.broadcast_to(special.reshape(-1, 1), (n, n)))
    yield Case("special values", [rows, special], [make.out(n, n)], each=True)
