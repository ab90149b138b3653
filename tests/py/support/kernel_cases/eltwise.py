"""Binary ops with broadcasting, unary ops, activation gradients, bias_add."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from kernel_cases.case import DIMS, NON_FINITE, Array, Case, Generator, Maker
from kernel_cases.places import Place, placed, repeated

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
    for left, right, x, y in _strided_pairs():
        values = [
            array if place is None else place.once(array)
            for array, place in ((make.integers(*left), x), (make.integers(*right), y))
        ]
        label, out = f"{left} {right} {x} {y}", make.out(*np.broadcast_shapes(left, right))
        yield Case(label, values, [out], places=(x, y), exact=True)


def _strided_pairs() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Place | None, Place | None]]:
    """Two shapes and their places."""
    for shape in ((17, 64), (65, 33), (5, 3, 2), (2, 3, 33, 16), (1, 7), (0, 3), (9,)):
        backwards = placed(shape, tuple(reversed(range(len(shape)))), gap=1)
        yield shape, shape, backwards, None
        yield shape, shape, placed(shape, gap=8), backwards
        yield shape, shape, placed(shape, step=2, offset=1), placed(shape, step=2, gap=3)
        yield shape, shape, placed(shape, gap=8), placed(shape, gap=8, offset=8)
        yield shape, shape, repeated(placed(shape), 0), repeated(placed(shape, gap=3), *range(len(shape)))
    for left, right in BROADCASTS:
        yield left, right, placed(left, gap=3), placed(right, gap=2, step=2)
        yield left, right, None, placed(right, tuple(reversed(range(len(right)))))


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


CASES: dict[str, Generator] = {
    **dict.fromkeys(("neg", *ACTIVATIONS), unary),
    **dict.fromkeys(("add", "sub", "mul", "div"), binary),
    **dict.fromkeys((f"{name}_bwd" for name in ACTIVATIONS), backward),
    "bias_add": bias_add,
}
