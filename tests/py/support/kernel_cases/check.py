"""check_index and check_finite: what fails at the start, in the middle and at the end, and what has failed before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from aicf_mlir.ir.registry import schemas
from kernel_cases.case import NON_FINITE, Array, Case, Generator, Maker, Spec
from kernel_cases.places import Place, placed

STATUS: Spec = ("i64", (3,))
FINE = np.zeros(3, np.int64)
FAILED = np.array([2, 5, -9])
COUNTS = (1, 7, 31, 1024, 1025, 5000)


def check_index(make: Maker) -> Iterator[Case]:
    for count, dtype in itertools.product(COUNTS, (np.int64, np.int32)):
        target = make.random.integers(0, 10, count).astype(dtype)
        yield _indices(f"{count} in range", FINE, [target])
        yield _indices(f"{count} failed before", FAILED, [target])
        for at, index in itertools.product({0, count // 2, count - 1}, (10, -1, -100)):
            wrong = target.copy()
            wrong[at:] = index
            yield _indices(f"{count} {index} at {at}", FINE, [wrong])
            yield _indices(f"{count} {index} at {at} ignoring", FINE, [wrong], ignored=[-100])
            yield _indices(f"{count} {index} at {at}, failed before", FAILED, [wrong])
    for count in (*COUNTS, 16, 47, 16 * 1024 + 5, 2 * 256 * 1024 + 3):
        found = np.zeros(count, np.bool_)
        yield _indices(f"{count} nothing found", FINE, [found], [1])
        for at in {0, count // 2, count - 1}:
            found = np.zeros(count, np.bool_)
            found[at:] = True
            yield _indices(f"{count} found at {at}", FINE, [found], [1])
            yield _indices(f"{count} found at {at} after", FAILED, [found], [1])
    shaped = np.array([[3, 4], [2**40, -5]])
    yield _indices("matrix", FINE, [shaped], [5])
    yield _indices("none", FINE, [np.zeros(0, np.int64)], [5])
    yield from _of_many(make)


def _of_many(make: Maker) -> Iterator[Case]:
    """Several targets, of a table and more, in places of their own; the first that fails counts."""
    for count in (2, 3, 27, 300):
        classes = [5 + i % 3 for i in range(count)]
        targets = [make.random.integers(0, size, 3 + 40 * i % 97) for i, size in enumerate(classes)]
        yield _indices(f"{count} in range", FINE, targets, classes)
        yield _indices(f"{count} failed before", FAILED, targets, classes)
        for wrong in ({0}, {count // 2, count - 1}, {count - 1}):
            given = [target.copy() for target in targets]
            for i in wrong:
                given[i][-1] = classes[i]
            ignored = [7 if i == min(wrong) else 0 for i in range(count)]
            yield _indices(f"{count} wrong {wrong}", FINE, given, classes)
            yield _indices(f"{count} wrong {wrong} ignoring", FINE, given, classes, ignored)
    mixed = [np.zeros(40_000, np.int32), np.zeros(0, np.int64), np.zeros(300_000, np.bool_), np.arange(7)]
    for i, at in ((0, 39_999), (2, 290_000), (3, 6)):
        given = [target.copy() for target in mixed]
        given[i][at] = 9 if i != 2 else True
        yield _indices(f"mixed, wrong {i}", FINE, given, [7, 1, 1, 7])
    whole = make.random.integers(0, 9, (50, 4))
    for at in (None, 0, 150, 199):
        given = whole.copy()
        if at is not None:
            given.flat[at] = -3
        columns = [given[:, i] for i in range(4)]
        places = (None, *(placed((50, 1), gap=3, offset=i) for i in range(4)))
        flat = tuple(None if place is None else Place(place.strides[:1], place.offset) for place in places)
        yield _indices(f"columns, wrong {at}", FINE, columns, [9] * 4, places=flat)
        rows = placed((50, 4), gap=5)
        yield _indices(f"rows, wrong {at}", FINE, [given], [9], places=(None, rows))
        transposed = placed((50, 4), (1, 0), gap=2)
        yield _indices(f"transposed, wrong {at}", FINE, [given > 8], [1], places=(None, transposed))


def _indices(
    label: str,
    status: Array,
    targets: list[Array],
    classes: list[int] | None = None,
    ignored: list[int] | None = None,
    places: tuple[Place | None, ...] = (),
) -> Case:
    attrs: dict[str, object] = {"classes": classes or [10] * len(targets), "code": 7}
    if ignored is not None:
        attrs["ignore_index"] = ignored
    return Case(label, [status, *targets], [STATUS], attrs, ((1, len(targets)), (1,)), places)


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
