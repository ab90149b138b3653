"""scan: rows that a warp walks, that a block walks, that several share; columns, also in parts; both directions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernel_cases.case import NAMES, Array, Case, Generator, Maker

SHAPES = (
    *(
        ((1,), 0),
        ((7, 31), 1),
        ((5, 1024), 1),
        ((3, 1025), 1),
        ((2, 9000), 1),
        ((1, 17000), 1),
        ((600, 1500), 1),
    ),
    *(((2048, 300), 1), ((4, 65), 1)),
    *(((31, 7), 0), ((2, 300, 70), 1), ((4000, 3), 0), ((2, 3, 4, 5), 2), ((0, 3), 0), ((3, 0), 1)),
)
"""A shape and the dimension that is walked."""


def scan(make: Maker) -> Iterator[Case]:
    for shape, dim in SHAPES:
        signs = make.cast(make.random.choice([-1.0, 1.0], shape))
        few = make.random.choice(make.special(), shape).reshape(shape)
        factor = make.cast(make.random.uniform(-0.9, 0.9, shape))
        given: dict[str, tuple[list[Array], bool]] = {
            "sum": ([np.where(make.random.random(shape) < 0.02, make.integers(*shape), make.cast(0))], True),
            "prod": ([signs], True),
            "logaddexp": ([make.normal(*shape)], False),
            "linear": ([make.normal(*shape), factor], False),
            "exp_linear": ([make.normal(*shape), -abs(factor)], False),
            "segment_sum": ([make.integers(*shape), make.cast(make.random.integers(0, 5, shape))], True),
            "argmax": ([few], True),
            "argmin": ([few], True),
        }
        for kind, (inputs, exact) in given.items():
            for reverse in (False, True):
                yield case(f"{kind} {shape} {reverse}", inputs, dim, kind, reverse, exact)
        if make.dtype == "f32":
            for dtype in (np.int64, np.int32):
                x = make.random.integers(-(2**31), 2**31, shape).astype(dtype)
                for kind in ("sum", "prod", "argmax"):
                    yield case(f"{kind} {dtype.__name__} {shape}", [x], dim, kind, False, True)


def case(label: str, inputs: list[Array], dim: int, kind: str, reverse: bool, exact: bool) -> Case:
    attrs: dict[str, Any] = {"dim": dim, "kind": kind, "reverse": reverse}
    x = inputs[0]
    result = ("i64" if kind.startswith("arg") else NAMES[x.dtype], x.shape)
    return Case(label, inputs, [result], attrs, ((1, len(inputs) - 1), (1,)), exact=exact)


CASES: dict[str, Generator] = {"scan": scan}
