"""Kernels whose schedule follows from long rows, or from operands that lie across."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from generated_cases import GeneratedCase, dense, make

from aicf_mlir.ir import formula as F
from aicf_mlir.ir.body import table_type
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.kernels.kernel import Kernel, Tensor


def shape_cases(target: str = "sm_90") -> Iterator[GeneratedCase]:
    """All of them."""
    yield from across_cases(target)
    yield from few_row_cases(target)
    yield from _long_rows(target)


def across_cases(target: str) -> Iterator[GeneratedCase]:
    """Two operands that lie across, which are read a sector at a time, beside one that does not: in a batch, of odd rows."""
    for number, (shape, elements) in enumerate(
        [((64, 48), "f32 f32"), ((3, 32, 80), "bf16 f32"), ((64, 21), "f16 f16"), ((40, 64), "f64 f64")]
    ):
        rng, (first, second) = np.random.default_rng((8, number)), elements.split()
        *batch, rows, columns = shape
        strides = (*(rows * columns for _ in batch), 1, rows)
        x, y, z = Tensor(first, shape, strides), Tensor(second, shape, strides), dense(first, *shape)
        row, column = len(batch), len(batch) + 1

        def above(a: F.Scalar, b: F.Scalar, c: F.Scalar, row: int = row, column: int = column) -> F.Scalar:
            return F.select(a.builder.index(column) * 2 > a.builder.index(row), a * b + c, 0)

        for told, formula in (("across", lambda a, b, c: a * b + c), ("across, above a diagonal", above)):
            body = F.trace(["f64" if first == "f64" else "f32"] * 3, formula)
            kernel = Kernel("map", target, body, shape, 0, (x, y, z), (dense(second, *shape),))
            yield make(f"{told} {elements}, {shape}", kernel, rng)

        def flipped(t: F.Scalar, a: F.Scalar, rank: int = len(shape), last: int = columns - 1) -> F.Scalar:
            *outer, column = (t.builder.index(dim) for dim in range(rank))
            return t.load(*outer, 0 - column + last) + a

        compute = "f64" if first == "f64" else "f32"
        body = F.trace([table_type(first, len(shape)), compute], flipped)
        table = Tensor(first, shape, strides)
        kernel = Kernel("map", target, body, shape, 0, (table, z), (dense(second, *shape),))
        yield make(f"across, flipped {elements}, {shape}", kernel, rng)


def few_row_cases(target: str) -> Iterator[GeneratedCase]:
    """So many columns that all threads of a block are along them."""
    for number, shape in enumerate([(1, 140_001), (3, 2, 140_001), (5, 544_000)]):
        rng, element = np.random.default_rng((9, number)), ("bf16", "f16", "f32")[number]
        body = F.trace(["f32"], lambda a: [F.row_max(a), F.row_sum(a * a)])
        results = (dense(element, shape[-1]), dense("f32", shape[-1]))
        kernel = Kernel("colwise", target, body, shape, len(shape) - 1, (dense(element, *shape),), results)
        yield make(f"few rows {element}, {shape}", kernel, rng)


def _long_rows(target: str) -> Iterator[GeneratedCase]:
    """Few rows of many elements, in parts that also write what follows no reduction; some of it in an operand's place."""

    def errors(a: F.Scalar, b: F.Scalar) -> list[F.Scalar]:
        difference = a - b
        return [F.row_sum(difference * difference) * 1e-4, difference + difference, F.row_max(a), a < b]

    body = F.trace(["f32", "f32"], errors)
    for number, (shape, reduced, elements) in enumerate(
        [((37, 523), 2, "f32 f32"), ((3, 17001), 1, "bf16 f32"), ((2, 5, 4096), 2, "f32 f16")]
    ):
        rng = np.random.default_rng((6, number))
        first, second = elements.split()
        kept = shape[: len(shape) - reduced]
        yield make(
            f"long rows {number}",
            Kernel(
                "rowwise",
                target,
                body,
                shape,
                reduced,
                (dense(first, *shape), Tensor(second, shape, tuple(reversed(dense_strides(shape[::-1]))))),
                (dense("f32", *kept), dense(first, *shape), dense("f32", *kept), dense("i1", *shape)),
            ),
            rng,
        )

    def weights(*given: F.Scalar) -> list[F.Scalar]:
        each = F.exp(sum(given) - F.row_max(sum(given)))
        return [each / F.row_sum(each), F.log(F.row_sum(each))]

    # More than registers hold: blocks share few rows; many are in shared memory, two blocks or one to a processor, or walked
    # over again.
    few = [
        (3, 50304, "bf16"),
        (3, 50257, "f16"),
        (2, 40004, "f32"),
        (1, 24000, "f32 f32"),
        (5, 30000, "bf16 f32"),
    ]
    many = [
        (67, 50304, "bf16"),
        (67, 50257, "f16"),
        (67, 40004, "f32"),
        (67, 60000, "f32"),
        (67, 24000, "f32 f32"),
    ]
    for number, (rows, size, elements) in enumerate((*few, *many)):
        rng, given = np.random.default_rng((7, number)), [dense(x, rows, size) for x in elements.split()]
        body, results = F.trace(["f32"] * len(given), weights), (given[0], dense("f32", rows))
        yield make(
            f"wide rows of {elements}, {rows}x{size}",
            Kernel("rowwise", target, body, (rows, size), 1, tuple(given), results),
            rng,
        )
