"""scatter_add and scatter_rows: indices all different, all the same, outside, none; columns around the strips of a kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernel_cases.case import Array, Case, Generator, Maker


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
            yield Case(f"{label} {rows}x{columns}, {sources}", given, [make.out(rows, columns)], exact=True)
    for rows, columns, sources in [
        (300, 3, 4099),
        (70000, 1, 9000),
        (3, 40, 5000),
        (255, 1, 4096),
        (256, 2, 4097),
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
            yield Case(f"{label} {rows}x{columns}, {sources}", given, [make.out(rows, columns)], exact=True)
    given = [make.normal(50, 70), make.random.integers(0, 50, 300), make.normal(300, 70)]
    yield Case("normal", given, [make.out(50, 70)])
    special = make.special().reshape(1, -1)
    index = np.zeros(2, np.int64)
    yield Case("special", [special, index, np.repeat(special, 2, 0)], [make.out(*special.shape)])


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


CASES: dict[str, Generator] = {"scatter_add": scatter_add, "scatter_rows": scatter_rows}
