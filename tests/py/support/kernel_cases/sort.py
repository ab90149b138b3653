"""argsort: rows and counts around the limits of its kernels; ties, special values, all places, some and one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.case import Array, Case, Generator, Maker

ROWS = (
    (9, 1),
    (3, 0),
    (5, 32),
    (4, 33),
    (3, 128),
    (3, 129),
    (2, 256),
    (2, 1000),
    (2, 1025),
    (2, 2048),
    (2, 2049),
    (2, 4096),
    (2, 4097),
    (1, 8192),
    (2, 9001),
    (1, 20000),
)
SOME = (
    (0, 1, False),
    (0, 2, True),
    (0, 255, False),
    (0, 256, True),
    (0, 257, False),
    (200, 56, False),
    (201, 56, True),
)
"""First place, count and whether it is descending: kernels for some places of a row find 256 at most, those in front included."""


def uses(n: int) -> Iterator[tuple[int, int, bool]]:
    """First place, count and whether it is descending, in rows of n elements."""
    few, one = min(n, 5), min(n, 1)
    yield from ((0, n, False), (0, few, True), ((n - few) // 2, few, False), (n // 2, one, True))
    yield from (use for use in SOME if use[0] + use[1] <= n)


def argsort(make: Maker) -> Iterator[Case]:
    for rows, n in ROWS:
        given: dict[str, Array] = {
            "normal": make.normal(rows, n),
            "ties": make.integers(rows, n, limit=3),
            "special": np.resize(make.special(), (rows, n)),
        }
        if make.dtype == "f32":
            wide = make.random.integers(-(2**62), 2**62, (rows, n))
            given |= {"i64": wide, "i32": (wide >> 32).astype(np.int32), "i1": wide > 0}
        for label, x in given.items():
            for first, count, descending in uses(n):
                attrs = {"count": count, "descending": descending, "first": first}
                name = f"{label} {rows}x{n} {first} {count} {descending}"
                yield Case(name, [x], [("i64", (rows, count))], attrs, exact=True)


CASES: dict[str, Generator] = {"argsort": argsort}
