"""Rows whose elements are compared with an index of the row, as a label is: the CUDA text has a branch for the few that hit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bodies import kernel_of, tensor
from cuda_on_host import HostKernels
from generated_cases import difference, make, view

from aicf_mlir.codegen.cuda.generate import generate
from aicf_mlir.codegen.cuda.row_schedules import schedule
from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.formula import Scalar
from aicf_mlir.kernels.kernel import Kernel

LABELS = (0, 5, -1, -100, 1 << 40, -(1 << 63), (1 << 63) - 1)
"""The first element, one within a vector, and numbers of no element; the last one of a row is tried too."""


def softmax_gradient(x: Scalar, label: Scalar, other: Scalar) -> list[Scalar]:
    """Two numbers of the row, what they name, and a gradient that both change."""
    index, one = x.builder.index(1), x.builder.constant(1.0, "f32")
    hit, second = index.equal(label), other.equal(index)
    largest = f.row_max(x)
    picked = f.row_sum(f.select(hit, x, 0.0))
    share = f.exp(x - largest) / f.row_sum(f.exp(x - largest))
    given = share - f.select(hit, one, 0.0) + f.select(second, x, 0.25)
    kept = f.row_sum(f.select(second, 3.0 * one, 0.0)) + f.row_sum(f.select(hit, 0.5 * one, -0.0))
    return [picked, given, kept + f.row_sum(f.select(hit, x, 1.0))]


def rows_of(columns: int, element: str) -> Kernel:
    rows = len(LABELS) + 1
    wide, number, one = (
        tensor(element, rows, columns),
        tensor("i64", rows, columns, strides=(1, 0)),
        tensor("f32", rows),
    )
    made = kernel_of("rowwise", softmax_gradient, [wide, number, number], [one, wide, one], reduced=1)
    return Kernel("rowwise", "sm_90", made.body, made.domain, 1, made.operands, made.results)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("columns", [8, 77, 1000, 1024, 40_000, 40_001, 120_000])
def test_a_branch_has_what_the_comparison_gives(columns: int, element: str, tmp_path: Path) -> None:
    kernel = rows_of(columns, element)
    rng = np.random.default_rng(columns)
    x = rng.standard_normal(8 * columns).astype(np.float32)
    x[5] = -0.0
    x = x.astype(NUMPY_TYPES[element])
    labels = np.array([*LABELS, columns - 1], np.int64)
    case = make("one-hot", kernel, rng, [x, labels, np.roll(labels, 1)])
    got = HostKernels([kernel], tmp_path).run(case)
    assert not [why for n, b in enumerate(got) if (why := difference(case, n, view(b, kernel.results[n])))]
    has_branch = "else {" in generate(kernel).source
    assert has_branch == (schedule(kernel).width > 1)
