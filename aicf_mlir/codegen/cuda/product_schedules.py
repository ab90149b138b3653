"""The schedules of a product with its epilogue: the tile of the result that a block computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aicf_mlir import _C
from aicf_mlir.codegen.cuda.products import ProductProblem, tile_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.registry import capability
from aicf_mlir.kernels.schedule_text import ScheduleText, expect

FORMS: Mapping[str, str] = {
    "TensorCoreProduct": "tile",
    "RegisterGroupProduct": "tile",
    "RegisterProduct": "tile",
    "TensorPanelProduct": "panel",
    "RegisterPanelProduct": "panel",
    "RegisterColumnProduct": "column",
    "ShortSumsProduct": "short",
    "ElementProduct": "element",
}
"""By the class of the device code. Panels divide the terms of a sum among warps, so they decide bits; tiles of one element type
do not."""
NUMBERS = ("rows", "columns", "resident")
THREADS = 2048
"""Of a multiprocessor. `resident` says how many blocks of it there may be, as far as registers go."""


def text_of(tile: _C.ProductTile) -> str:
    """The schedule of a tile."""
    numbers = tile["rows"], tile["columns"], tile["resident"]
    return str(ScheduleText(FORMS[tile["product"]], dict(zip(NUMBERS, numbers, strict=True))))


def tile_by(problem: ProductProblem, text: str) -> _C.ProductTile:
    """The tile that a schedule names, "" for the one that is chosen; SelectionError where there is none such."""
    chosen = tile_of(problem)
    if not text:
        return chosen
    tiles = list(tiles_of(problem))
    found = ScheduleText.parse(text, dict.fromkeys((FORMS[tile["product"]] for tile in tiles), NUMBERS))
    for tile in tiles:
        size = FORMS[tile["product"]], tile["rows"], tile["columns"]
        if size == (found.form, found["rows"], found["columns"]):
            expect(text, "resident", found["resident"], range(1, THREADS // tile["threads"] + 1))
            return {**tile, "resident": found["resident"]}
    raise SelectionError(f"schedule {text!r}: expected {' or '.join(map(repr, map(text_of, tiles)))}")


def tiles_of(problem: ProductProblem) -> Iterator[_C.ProductTile]:
    """Every tile that there is code for."""
    sm, flags = capability(problem.target), (problem.a.transposed, problem.b.transposed, problem.allow_tf32)
    yield from _C.product_tiles(problem.element, sm, problem.n, problem.k, *flags)


def texts(problem: ProductProblem) -> list[str]:
    """The schedule that is chosen, then those of all tiles."""
    return list(dict.fromkeys([text_of(tile_of(problem)), *map(text_of, tiles_of(problem))]))
