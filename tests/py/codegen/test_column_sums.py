"""Column sums of rowwise kernels: what they may follow and be followed by, on which operands, and that none is another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bodies import check, expected, kernel_of, random_values, tensor
from cuda_on_host import HostKernels
from generated_cases import difference, make, view
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen.cuda.rows_and_columns import schedule
from aicf_mlir.codegen.llvm import walks_together
from aicf_mlir.ir import formula as f
from aicf_mlir.ir.body_derivative import derivative
from aicf_mlir.ir.formula import Scalar, trace
from aicf_mlir.kernels.column_sums import apart, together
from aicf_mlir.kernels.kernel import Kernel

FULL, BY_ROW, BY_COLUMN = (
    tensor("f32", 6, 8),
    tensor("f32", 6, 8, strides=(1, 0)),
    tensor("f32", 6, 8, strides=(0, 1)),
)
ROW, COLUMN, NARROW = tensor("f32", 6), tensor("f32", 8), tensor("bf16", 6, 8)


def late_of(x: Scalar) -> list[Scalar]:
    """A value, and the sum of its columns as it is before it is rounded."""
    return [x, f.column_sum(x)]


REFUSED: list[tuple[str, str, Callable[..., Any], list[Any], int]] = [
    ("map has no reductions", "map", lambda x, y: f.column_sum(x), [FULL], 0),
    ("keeps a dimension; use colwise", "colwise", lambda x, y: f.column_sum(x), [COLUMN], 1),
    ("keeps a dimension; use colwise", "rowwise", lambda x, y: [x, f.column_sum(x)], [FULL, FULL], 2),
    ("alone is a colwise one", "rowwise", lambda x, y: f.column_sum(x), [COLUMN], 1),
    ("takes a result", "rowwise", lambda x, y: [x, f.column_sum(x - f.row_max(x))], [FULL, COLUMN], 1),
    ("takes a result", "rowwise", lambda x, y: late_of(x - f.row_max(x)), [NARROW, COLUMN], 1),
    ("no other column sum", "rowwise", lambda x, y: [x, f.column_sum(x + f.column_sum(x))], [FULL, COLUMN], 1),
    ("scalar.max follows a column sum", "rowwise", lambda x, y: [x, f.row_max(f.column_sum(x))], [FULL, ROW], 1),
    ("differs from row to row", "rowwise", lambda x, y: [x, f.column_sum(x) * y], [FULL, COLUMN], 1),
    ("differs from row to row", "rowwise", lambda x, y: [x, f.column_sum(x) * f.row_max(x)], [FULL, COLUMN], 1),
    ("expected shape [8], got [6, 8]", "rowwise", lambda x, y: [x, f.column_sum(x)], [FULL, FULL], 1),
    ("expected shape [8], got [6]", "rowwise", lambda x, y: [x, f.column_sum(x)], [FULL, ROW], 1),
]  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "formula", "results", "reduced"), REFUSED)
def test_refused(
    words: str, kind: str, formula: Callable[..., Any], results: list[Any], reduced: int
) -> None:
    with pytest.raises(VerifyException) as raised:
        kernel_of(kind, formula, [FULL, BY_ROW], results, reduced=reduced)
    assert words in str(raised.value)


def test_a_column_sum_has_no_derivative() -> None:
    with pytest.raises(VerifyException, match=r"scalar\.column_sum has no derivative"):
        derivative(trace(["f32"], f.column_sum))


def mixed(x: Scalar, y: Scalar, w: Scalar) -> list[Scalar]:
    """Sums of rows and of columns over the same values, in an order that tells them apart; one sum twice."""
    by_row = f.row_sum(x)
    first, second, third = f.column_sum(y), f.column_sum(x), f.column_sum(y)
    return [x - by_row, by_row, first, second * w + w, third, f.column_sum(w), f.row_max(y)]


def columns_too(*shape: int, reduced: int = 1) -> Kernel:
    """`mixed` over a domain of any shape; `w` is the same for all rows."""
    kept, row = shape[: len(shape) - reduced], shape[len(shape) - reduced :]
    full, strides = tensor("f32", *shape), tensor("f32", *row).strides
    weights = tensor("f32", *shape, strides=(*[0] * len(kept), *strides))
    turned = [0] * len(shape)
    step = 1
    for dim in range(len(shape)):  # first dimension first
        turned[dim], step = step, step * max(shape[dim], 1)
    results = [full, tensor("f32", *kept), *[tensor("f32", *row)] * 4, tensor("f32", *kept)]
    operands = [full, tensor("f32", *shape, strides=turned), weights]
    return kernel_of("rowwise", mixed, operands, results, reduced=reduced)


SHAPES = ((6, 8), (513, 8), (700, 130), (3, 5, 7), (9, 80, 3, 33), (1, 5), (7, 1), (600, 1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduced", [1, 2])
def test_on_the_cpu(shape: tuple[int, ...], reduced: int) -> None:
    if reduced < len(shape):
        kernel = columns_too(*shape, reduced=reduced)
        check(kernel, scale=100, cuts=(1, 2, 5))
        rows = int(np.prod(kernel.kept))
        beside = kernel.domain[-1] == 1  # rows of one element lie side by side, and have a lane each
        assert walks_together(kernel) == (rows > 7 * 64 and not beside)
    else:
        with pytest.raises(VerifyException):
            columns_too(*shape, reduced=reduced)


def late(x: Scalar, y: Scalar, w: Scalar, element: str) -> list[Scalar]:
    """Sums of columns of two results, one of which follows two reductions, between sums of what follows none."""
    first = x - f.row_max(x)
    second = (y * first - f.row_max(y * first) * x).rounded(element)
    return [
        f.column_sum(second) * w + w,
        first,
        f.column_sum(x),
        second,
        f.column_sum(first),
        f.row_sum(first),
        f.column_sum(second),
    ]


def late_sums(element: str, *shape: int, target: str = "cpu") -> Kernel:
    """`late` over a domain, with a result of this element type."""
    row = shape[-1:]
    full, weights = tensor("f32", *shape), tensor("f32", *shape, strides=(*[0] * (len(shape) - 1), 1))
    narrow, column = tensor(element, *shape), tensor("f32", *row)
    results = [column, full, column, narrow, column, tensor("f32", *shape[:-1]), column]
    made = kernel_of("rowwise", partial(late, element=element), [full, full, weights], results, reduced=1)
    return replace(made, target=target)


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(6, 8), (700, 130), (3, 5, 7), (1, 5), (7, 1), (4, 0)])
def test_sums_of_results_on_the_cpu(shape: tuple[int, ...], element: str) -> None:
    kernel = late_sums(element, *shape)
    assert kernel.body.late_columns == (0, 4, 6)
    assert [part.kind for part in apart(kernel)] == ["colwise", "rowwise", "colwise"]
    check(kernel, whole_numbers(kernel), cuts=(1, 2, 5))


def whole_numbers(kernel: Kernel) -> list[Any]:
    """Operands whose sums and products are exact in f32, so that all round alike; some products have more digits than bf16."""
    rng = np.random.default_rng(3)
    return [
        rng.integers(-40, 40, t.shape if 0 not in t.strides else t.shape[-1:]).astype(np.float32)
        for t in kernel.operands
    ]


@pytest.mark.parametrize("element", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("shape", "in_one_walk"), [((6, 8), False), ((300, 132), True), ((2, 70, 64), True), ((3, 20_000), False)]
)
def test_sums_of_results_as_cuda_on_the_host(
    shape: tuple[int, ...], in_one_walk: bool, element: str, tmp_path: Path
) -> None:
    kernel = late_sums(element, *shape, target="sm_90")
    assert (schedule(kernel) is not None) == in_one_walk
    case = make("late sums", kernel, np.random.default_rng(1), [x.reshape(-1) for x in whole_numbers(kernel)])
    got = HostKernels([case.kernel], tmp_path).run(case)
    assert not [
        why for n, b in enumerate(got) if (why := difference(case, n, view(b, case.kernel.results[n])))
    ]


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_of_nothing(shape: tuple[int, int], tmp_path: Path) -> None:
    full, results = tensor("f32", *shape), [tensor("f32", n) for n in (shape[0], shape[1])]
    kernel = kernel_of("rowwise", lambda x: [f.row_sum(x), f.column_sum(x) * 2.0], [full], results, reduced=1)
    assert not any(number for result in check(kernel) for number in result)
    on_gpu = make("of nothing", replace(kernel, target="sm_90"), np.random.default_rng(0))
    got = HostKernels([on_gpu.kernel], tmp_path).run(on_gpu)
    assert not any(difference(on_gpu, n, view(b, on_gpu.kernel.results[n])) for n, b in enumerate(got))


@pytest.mark.parametrize("shape", [(6, 8), (300, 132), (2, 70, 3, 33), (1, 64), (7, 1), (3, 20_000)])
def test_as_cuda_on_the_host(shape: tuple[int, ...], tmp_path: Path) -> None:
    case = make("columns too", replace(columns_too(*shape), target="sm_90"), np.random.default_rng(1))
    got = HostKernels([case.kernel], tmp_path).run(case)
    assert not [
        why for n, b in enumerate(got) if (why := difference(case, n, view(b, case.kernel.results[n])))
    ]


def test_a_number_that_is_none_stays_in_its_row_and_column() -> None:
    kernel = columns_too(600, 8)
    values = [random_values(t.element, t.shape, n) for n, t in enumerate(kernel.operands)]
    values[0][99, 3], values[1][7, 5] = np.nan, np.inf
    got = check(kernel, values, scale=100)
    assert np.isnan(got[3]).tolist() == [n == 3 for n in range(8)]
    assert np.isinf(got[2]).tolist() == [n == 5 for n in range(8)]


def test_parts_take_the_addresses_of_the_launch() -> None:
    kernel = columns_too(6, 8)
    columns, rows = apart(kernel)
    assert columns.launch_tensors == (0, 1, 2, None, None, 3, 4, 5, 6, None)
    assert rows.launch_tensors == (0, 1, None, 2, 3, None, None, None, None, 4)
    assert together(kernel).rows.launch_tensors == (0, 1, 2, 3, 4, None, None, None, None, 5)
    values = [random_values(t.element, t.shape, n) for n, t in enumerate(kernel.operands)]
    assert [a.shape for a in expected(kernel, values)] == [t.shape for t in kernel.results]
