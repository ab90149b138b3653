"""copy with every cast, transpose, broadcast."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from kernel_cases.case import DIMS, FLOATS, Array, Case, Maker
from kernel_cases.elementwise import BROADCASTS, SHAPES


def copy(make: Maker) -> Iterator[Case]:
    for shape, to in itertools.product(SHAPES, [name for name in NUMPY_TYPES if name != "i8"]):
        yield Case(
            f"{shape} to {to}",
            [make.cast(make.normal(*shape).astype(np.float64) * 10)],
            [(to, shape)],
            exact=True,
        )
    every_half = np.arange(1 << 16, dtype=np.uint16)
    if make.dtype in ("f16", "bf16"):
        values = every_half.view(NUMPY_TYPES[make.dtype])
    else:  # halfway between neighbours in f16 and bf16, and one step off, where one rounding differs from two
        halves = every_half.view(np.float16).astype(np.float64)
        halves = halves[np.isfinite(halves)]
        midpoints = (halves[:-1] + halves[1:]) / 2
        values = make.cast(
            np.concatenate([midpoints, midpoints * (1 + 2.0**-40), midpoints * (1 - 2.0**-40)])
        )
        values = values[np.isfinite(values)]
    for to in FLOATS:
        yield Case(f"roundings to {to}", [values], [(to, values.shape)], exact=True)
    yield Case("special values to i1", [make.special()], [("i1", make.special().shape)], exact=True)
    for dtype, to in itertools.product(("i64", "i32", "i1"), [name for name in NUMPY_TYPES if name != "i8"]):
        integers = make.random.integers(-300, 300, (17, 3)).astype(NUMPY_TYPES[dtype])
        yield Case(f"{dtype} to {to}", [integers], [(to, (17, 3))], exact=True)


PERMUTATIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n, m), (1, 0)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((2, 3, 4), (0, 2, 1)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 4), (2, 1, 0)), ((2, 3, 4), (0, 1, 2)), ((), ()), ((5,), (0,)), ((0, 3), (1, 0)),
    ((3, 1, 5, 1), (2, 3, 1, 0)),
    ((2, 3, 4, 5), (0, 2, 1, 3)), ((2, 1, 2, 1, 2, 3, 2, 2), (7, 6, 5, 4, 3, 2, 1, 0)),
    ((33, 65, 3), (1, 0, 2)), ((70, 90), (1, 0)),
]  # fmt: skip


def _bits(make: Maker, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in FLOATS:
        return make.normal(*shape)
    return make.random.integers(-99, 99, shape).astype(NUMPY_TYPES[dtype])


def transpose(make: Maker) -> Iterator[Case]:
    for (shape, perm), dtype in itertools.product(PERMUTATIONS, (make.dtype, "i64", "i32", "i1")):
        x = _bits(make, dtype, shape)
        outputs = [(dtype, tuple(shape[d] for d in perm))]
        yield Case(f"{dtype} {shape} {perm}", [x], outputs, {"perm": list(perm)}, exact=True)


def broadcast(make: Maker) -> Iterator[Case]:
    targets = [(shape, np.broadcast_shapes(*pair)) for pair in BROADCASTS for shape in pair]
    for (shape, target), dtype in itertools.product(
        [*targets, ((), (3, 0))], (make.dtype, "i64", "i32", "i1")
    ):
        yield Case(f"{dtype} {shape} {target}", [_bits(make, dtype, shape)], [(dtype, target)], exact=True)
