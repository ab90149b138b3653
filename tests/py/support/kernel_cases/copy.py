"""copy: every cast, and between layouts; multi_tensor_copy: several between layouts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.passes.merge_copies import MOST_TENSORS
from kernel_cases.case import DIMS, FLOATS, Array, Case, Generator, Maker
from kernel_cases.eltwise import SHAPES
from kernel_cases.places import Place, placed, repeated


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
    yield from _strided_copies(make)


PERMUTATIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((n, m), (1, 0)) for n, m in zip(DIMS, reversed(DIMS), strict=True)), ((2, 3, 4), (0, 2, 1)),
    ((2, 3, 4), (2, 0, 1)),
    ((2, 3, 4), (2, 1, 0)), ((2, 3, 4), (0, 1, 2)), ((), ()), ((5,), (0,)), ((0, 3), (1, 0)),
    ((3, 1, 5, 1), (2, 3, 1, 0)),
    ((2, 3, 4, 5), (0, 2, 1, 3)), ((2, 1, 2, 1, 2, 3, 2, 2), (7, 6, 5, 4, 3, 2, 1, 0)),
    ((33, 65, 3), (1, 0, 2)), ((70, 90), (1, 0)), ((2, 50, 77), (0, 2, 1)),
    ((2, 3, 300), (0, 2, 1)), ((600, 4), (1, 0)), ((9, 270), (1, 0)), ((2, 150, 7), (0, 2, 1)), ((2, 20, 1030), (0, 2, 1)),
    ((2, 3, 17, 19), (0, 2, 3, 1)), ((2, 17, 19, 5), (0, 3, 1, 2)), ((2, 3, 9, 4, 11, 4), (0, 2, 4, 3, 5, 1)),
    ((2, 5, 40, 2), (3, 1, 2, 0)),
    ((3, 40, 3, 3), (0, 2, 3, 1)), ((3, 3, 3, 40), (0, 3, 1, 2)), ((5, 64, 16), (0, 2, 1)), ((5, 16, 64), (0, 2, 1)),
    ((3, 100, 17), (0, 2, 1)), ((2, 17, 100), (0, 2, 1)), ((2, 128, 196), (0, 2, 1)),
]  # fmt: skip


def _bits(make: Maker, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in FLOATS:
        return make.normal(*shape)
    return make.random.integers(-99, 99, shape).astype(NUMPY_TYPES[dtype])


HEADS = (0, 2, 1, 3)
"""The order in memory of [batch, head, time, size] that is a view of [batch, time, head, size]."""


def _strided_copies(make: Maker) -> Iterator[Case]:
    for shape, x, y in _copied_places():
        label = f"{shape} from {x} to {y}"
        pairs = [(make.dtype, make.dtype), (make.dtype, "f32"), (make.dtype, "i64")]
        if make.dtype == "f32":  # once for all floats
            pairs += [("i64", "i64"), ("i32", "i32"), ("i1", "i1"), ("i32", "bf16"), ("i1", "f16")]
        for dtype, to in dict.fromkeys(pairs):
            values = _bits(make, dtype, shape)
            if x is not None:
                values = x.once(values)
            yield Case(f"{dtype} to {to} {label}", [values], [(to, shape)], places=(x, y), exact=True)


def _copied_places() -> Iterator[tuple[tuple[int, ...], Place | None, Place | None]]:
    """Shape, place of x, place of y."""
    for memory, perm in PERMUTATIONS:  # transposed from dense, to dense, and both with gaps
        shape, order = tuple(memory[d] for d in perm), list(np.argsort(perm))
        yield shape, placed(shape, order), None
        yield shape, None, placed(shape, order)
        yield shape, placed(shape, order, gap=3), placed(shape, gap=2, step=2)
    for shape in ((64,), (5, 64), (6, 7), (3, 5, 40), (1, 1), (4, 1), (0, 3), ()):
        for gap, step, offset in ((8, 1, 8), (16, 1, 0), (3, 1, 0), (0, 1, 1), (0, 2, 0), (1, 3, 5)):
            place = placed(shape, gap=gap, step=step, offset=offset)
            yield shape, place, None
            yield shape, None, place
            yield shape, place, placed(shape, gap=gap)
        for d in range(len(shape)):
            yield shape, repeated(placed(shape, gap=1), d), None
        yield shape, repeated(placed(shape), *range(len(shape))), placed(shape, gap=8)
    for size in (64, 5):  # heads, and a part of a concatenation
        shape = (2, 3, 33, size)
        yield shape, placed(shape, HEADS), None
        yield shape, placed(shape, HEADS, gap=16, offset=size), placed(shape, HEADS, gap=8)
        yield shape, placed(shape, (0, 3, 1, 2)), placed(shape, (0, 2, 3, 1), gap=2)
    yield (
        (2,) * 8,
        placed((2,) * 8, (7, 5, 3, 1, 6, 4, 2, 0), gap=1),
        placed((2,) * 8, (1, 0, 3, 2, 5, 4, 7, 6), gap=1),
    )
    for shape in ((1,), (7,), (4099,), (3, 5, 333), (1 << 16,)):  # one element, as often
        yield shape, repeated(placed(shape), *range(len(shape))), None


def together(make: Maker) -> Iterator[Case]:
    """Several moves of one launch, and casts: of tensors of all sizes and layouts, some without elements, as many as it takes."""
    places = [*_copied_places()]
    for count, first in (
        (1, 0),
        (2, 5),
        (MOST_TENSORS, 0),
        (MOST_TENSORS, 40),
        (MOST_TENSORS, len(places) - MOST_TENSORS),
    ):
        chosen = places[first : first + count]
        shapes, xs, ys = zip(*chosen, strict=True)
        values = [
            values if x is None else x.once(values)
            for values, x in zip((_bits(make, make.dtype, shape) for shape in shapes), xs, strict=True)
        ]
        for to in FLOATS if make.dtype in FLOATS else (make.dtype,):
            yield Case(
                f"{count} tensors from {first} to {to}",
                values,
                [(to, shape) for shape in shapes],
                counts=((count,), (count,)),
                places=(*xs, *ys),
                exact=True,
            )


CASES: dict[str, Generator] = {"copy": copy, "multi_tensor_copy": together}
