"""scatter_add and scatter_rows: indices all different, all the same, outside, none; columns around the strips of a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aicf_mlir.interpreters.kernel import meaning
from kernel_cases.case import Array, Case, Generator, Maker
from kernel_cases.places import Place


def scatter_add(make: Maker) -> Iterator[Case]:
    for rows, columns, sources in [
        *((1, 1, 1), (3, 5, 7), (17, 33, 64), (64, 128, 33), (40, 129, 200)),
        *((300, 31, 100), (7, 513, 40), (5, 3, 0), (1000, 1100, 500)),
    ]:
        different = make.random.permutation(max(rows, sources))[:sources] % rows
        indices: dict[str, Array] = {
            "random": make.random.integers(0, rows, sources),
            "different": different,
            "one row": np.full(sources, rows // 2),
            "outside": make.random.integers(-rows, 2 * rows, sources),
            "none inside": np.where(make.random.integers(0, 2, sources) == 1, 2**40, -1),
        }
        for label, index in indices.items():
            given = [make.integers(rows, columns, limit=2), index, make.integers(sources, columns)]
            yield _sum(f"{label} {rows}x{columns}, {sources}", make, [given])
    for rows, columns, sources in [
        (300, 3, 4099),
        (70000, 1, 9000),
        (3, 40, 5000),
        (255, 1, 4096),
        (256, 2, 4097),
        (7, 2056, 4100),  # more columns than a block has threads for
    ]:
        indices = {  # of many sources, which are sorted: few and many a row, in tiles of 4096 and chunks of 256
            "many": make.random.integers(0, rows, sources),
            "many, skewed": np.minimum(make.random.geometric(0.3, sources) - 1, rows - 1),
            "many, outside": make.random.integers(-rows, 2 * rows, sources),
            "many, one row": np.full(sources, rows - 1),
            "many, of a chunk": np.repeat(np.arange(sources // 256 + 1), 256)[:sources] % rows,
        }
        for label, index in indices.items():
            given = [make.integers(rows, columns, limit=2), index, make.integers(sources, columns, limit=1)]
            yield _sum(f"{label} {rows}x{columns}, {sources}", make, [given])
    given = [make.normal(50, 70), make.random.integers(0, 50, 300), make.normal(300, 70)]
    yield _sum("normal", make, [given], exact=False)
    special = make.special().reshape(1, -1)
    index = np.zeros(2, np.int64)
    yield _sum("special", make, [[special, index, np.repeat(special, 2, 0)]], exact=False)
    yield from _of_many(make)
    yield from _looked_up(make)


def _of_many(make: Maker) -> Iterator[Case]:
    """Several matrices, of a table and more; indices and sources that are parts of one tensor.

    The first has no sources. Of five and more, others have no rows, or no columns, and full ones follow.
    """
    for count in (2, 5, 350):
        each: list[list[Array]] = []
        for i in range(count):
            rows = 0 if i % 50 == 2 else 1 + i * 37 % 300
            columns, sources = 0 if i % 50 == 3 else 1 + i * 5 % 70, i * 11 % 130
            index = make.random.integers(-1, rows + 1, sources)
            each.append([make.integers(rows, columns, limit=2), index, make.integers(sources, columns)])
        yield _sum(f"{count} matrices", make, each)
    for columns, sources in ((64, 300), (3, 5000), (1, 40)):
        each = [
            [
                make.integers(90, columns),
                make.random.integers(0, 90, sources),
                make.integers(sources, columns),
            ]
            for _ in range(3 if sources < 4096 else 1)
        ]
        count = len(each)
        indices = [Place((count,), i) for i in range(count)]
        rows = [Place((count * columns + 4, 1), i * columns) for i in range(count)]
        yield _sum(f"parts of {columns}", make, each, (*[None] * count, *indices, *rows))


def _sum(
    label: str,
    make: Maker,
    each: list[list[Array]],
    places: tuple[Place | None, ...] = (),
    exact: bool = True,
) -> Case:
    """Of x, index and src of each matrix."""
    operands = [one[i] for i in range(3) for one in each]
    counts = (*(len(each),) * 3, 0), (len(each),)
    outputs = [make.out(*one[0].shape) for one in each]
    return Case(label, operands, outputs, {}, counts, places, exact=exact)


def _looked_up(make: Maker) -> Iterator[Case]:
    """Rows of src that are named, in any order and in that of sort_rows."""
    for rows, columns, source_rows, sources in (
        *((3, 5, 4, 7), (40, 129, 9, 200), (6, 2, 1, 0), (5, 3, 0, 6)),
        *((300, 3, 50, 4099), (70000, 1, 70000, 9000), (3, 40, 700, 5000), (90, 64, 90, 5001)),
    ):
        for label, beyond in (("inside", 0), ("outside", max(rows, source_rows))):
            index = make.random.integers(-beyond, rows + beyond, sources)
            at = make.random.integers(-beyond, max(source_rows, 1) + beyond, sources)
            x, src = make.integers(rows, columns, limit=2), make.integers(source_rows, columns)
            keys, places = meaning(
                "sort_rows",
                [index, at],
                {"rows": rows, "source_rows": source_rows},
                [("i32", (sources,))] * 2,
                counts=((1, 1), (1, 1)),
            )
            counts, name = ((1, 1, 1, 1), (1,)), f"{rows}x{columns} of {source_rows}, {sources}"
            for order, given in (("named", (index, at)), ("sorted", (keys, places))):
                operands = [x, given[0], src, given[1]]
                yield Case(
                    f"{order} {label} {name}", operands, [make.out(rows, columns)], {}, counts, exact=True
                )


def sort_rows(make: Maker) -> Iterator[Case]:
    if make.dtype != "f32":
        return
    for rows, source_rows, sources in (
        *((3, 4, 7), (1, 1, 1), (9, 5, 0), (0, 3, 5), (4, 0, 6), (255, 300, 4096), (256, 2, 4097)),
        *((70000, 500, 9000), (1 << 25, 1 << 30, 5000)),
    ):
        attrs = {"rows": rows, "source_rows": source_rows}
        both = np.stack(
            [make.random.integers(-2, rows + 2, sources), make.random.integers(-2, source_rows + 2, sources)]
        )
        for label, given, places in (
            ("index", [both[0]], ()),
            ("index and at", [both[0], both[1]], ()),
            ("parts", [both[0], both[1]], (Place((2,), 0), Place((2,), 1))),
        ):
            counts = ((1, len(given) - 1), (1, 1))
            out = [("i32", (sources,))] * 2
            yield Case(f"{label} {rows}, {sources}", given, out, attrs, counts, places, exact=True)


def scatter_rows(make: Maker) -> Iterator[Case]:
    for rows, columns, sources in [
        *((1, 1, 1), (3, 5, 7), (40, 129, 200), (7, 513, 40), (5, 3, 0)),
        *((300, 3, 4099), (70000, 1, 9000), (3, 40, 5000), (256, 2, 4097)),
    ]:
        indices: dict[str, Array] = {
            "random": make.random.integers(-1, rows + 1, sources),
            "one row": np.full(sources, rows // 2),
            "outside": np.where(make.random.integers(0, 2, sources) == 1, 2**40, -1),
            "of a chunk": np.repeat(np.arange(sources // 256 + 1), 256)[:sources] % rows,
        }
        for label, index in indices.items():
            name, out = f"{label} {rows}x{columns}, {sources}", make.out(rows, columns)
            x, src = make.normal(rows, columns), make.normal(sources, columns)
            yield Case(f"last {name}", [x, index, src], [out], {"kind": "last"}, exact=True)
            if make.dtype == "f32":
                whole = [(z * 1000).astype(np.int64) for z in (x, src)]
                given = [whole[0], index, whole[1]]
                yield Case(
                    f"last i64 {name}", given, [("i64", (rows, columns))], {"kind": "last"}, exact=True
                )
                given = [x > 0, index, src > 0]
                yield Case(f"last i1 {name}", given, [("i1", (rows, columns))], {"kind": "last"}, exact=True)
            for own in (True, False):
                for kind in ("max", "min"):
                    attrs = {"kind": kind, "include_self": own}
                    yield Case(f"{kind} {own} {name}", [x, index, src], [out], attrs, exact=True)
                signs = [np.where(z > 0, make.cast(1), make.cast(-1)) for z in (x, src)]
                given = [signs[0], index, signs[1]]
                attrs = {"kind": "prod", "include_self": own}
                yield Case(f"prod {own} {name}", given, [out], attrs, exact=True)
    special = make.special().reshape(1, -1)
    for kind in ("last", "max", "min", "prod"):
        given = [special, np.zeros(2, np.int64), np.repeat(special[:, ::-1], 2, 0)]
        yield Case(f"special {kind}", given, [make.out(*special.shape)], {"kind": kind})


CASES: dict[str, Generator] = {
    "scatter_add": scatter_add,
    "scatter_rows": scatter_rows,
    "sort_rows": sort_rows,
}
