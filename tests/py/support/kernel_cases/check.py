"""check_index and check_finite: what fails at the start, in the middle and at the end, and what has failed before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from aicf_mlir.ir.registry import schemas
from kernel_cases.case import NON_FINITE, Array, Case, Generator, Maker, Spec

STATUS: Spec = ("i64", (3,))
FINE = np.zeros(3, np.int64)
FAILED = np.array([2, 5, -9])
COUNTS = (1, 7, 31, 1024, 1025, 5000)


def check_index(make: Maker) -> Iterator[Case]:
    for count, dtype in itertools.product(COUNTS, (np.int64, np.int32)):
        target = make.random.integers(0, 10, count).astype(dtype)
        attrs = {"classes": 10, "code": 7}
        ignoring = attrs | {"ignore_index": -100}
        yield Case(f"{count} in range", [FINE, target], [STATUS], attrs)
        yield Case(f"{count} failed before", [FAILED, target], [STATUS], attrs)
        for at, index in itertools.product({0, count // 2, count - 1}, (10, -1, -100)):
            wrong = target.copy()
            wrong[at:] = index
            yield Case(f"{count} {index} at {at}", [FINE, wrong], [STATUS], attrs)
            yield Case(f"{count} {index} at {at} ignoring", [FINE, wrong], [STATUS], ignoring)
            yield Case(f"{count} {index} at {at}, failed before", [FAILED, wrong], [STATUS], attrs)
    for count in (*COUNTS, 16, 47, 16 * 1024 + 5):
        found = np.zeros(count, np.bool_)
        yield Case(f"{count} nothing found", [FINE, found], [STATUS], {"classes": 1, "code": 7})
        for at in {0, count // 2, count - 1}:
            found = np.zeros(count, np.bool_)
            found[at:] = True
            yield Case(f"{count} found at {at}", [FINE, found], [STATUS], {"classes": 1, "code": 7})
            yield Case(f"{count} found at {at} after", [FAILED, found], [STATUS], {"classes": 1, "code": 7})
    shaped = np.array([[3, 4], [2**40, -5]])
    yield Case("matrix", [FINE, shaped], [STATUS], {"classes": 5, "code": 1})
    yield Case("none", [FINE, np.zeros(0, np.int64)], [STATUS], {"classes": 5, "code": 1})


def check_finite(make: Maker) -> Iterator[Case]:
    shapes = [(), (3,), (0,), (17, 33), (5, 1000), (2, 3, 4)]

    def tensors() -> list[Array]:
        return [make.normal(*shape) for shape in shapes]

    yield _case("finite", FINE, tensors())
    yield _case("failed before", FAILED, tensors())
    extremes = make.special()[: -len(NON_FINITE)]
    yield _case("extremes", FINE, [extremes[np.isfinite(extremes.astype(np.float64))]])
    for number, (index, shape) in itertools.product(NON_FINITE, enumerate(shapes)):
        size = int(np.prod(shape))
        for at in sorted({0, size // 2, size - 1} if size else set[int]()):
            values = tensors()
            values[index].flat[at] = number
            values[-1].flat[-1] = np.nan  # a later one does not count
            yield _case(f"{number} in {index} at {at}", FINE, values)
    values = tensors()
    values[0][...] = np.nan
    yield _case("failed before and again", FAILED, values)


def _case(label: str, status: Array, values: list[Array]) -> Case:
    counts = schemas()["check_finite"].counts({"status": 1, "x": len(values)})
    return Case(label, [status, *values], [STATUS], {"code": 3}, counts)


CASES: dict[str, Generator] = {"check_index": check_index, "check_finite": check_finite}
