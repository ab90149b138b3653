"""Kernels for tests of code generators: operands with values, and what a kernel computes by the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from native_code import NUMPY, Array, Loaded, placed

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.ir.body import COMPUTE, is_table, table_type
from aicf_mlir.ir.formula import trace
from aicf_mlir.ir.layouts import dense_strides
from aicf_mlir.ir.roundings import written
from aicf_mlir.kernels.kernel import Kernel, Tensor

TOLERANCE = {"f32": 4e-6, "f64": 1e-13, "f16": 1.1e-3, "bf16": 8.5e-3}
"""Relative: a few roundings of the type, or one of the narrow types."""


def tensor(element: str, *shape: int, strides: Sequence[int] | None = None) -> Tensor:
    """A tensor, dense unless strides are given."""
    return Tensor(element, tuple(shape), tuple(strides) if strides is not None else dense_strides(shape))


def kernel_of(
    kind: str,
    formula: Callable[..., Any],
    operands: Sequence[Tensor],
    results: Sequence[Tensor],
    domain: Sequence[int] | None = None,
    reduced: int = 0,
    tables: int = 0,
) -> Kernel:
    """A verified kernel; the last `tables` operands are tables."""
    whole = len(operands) - tables
    types = [
        COMPUTE[t.element] if number < whole else table_type(t.element, len(t.shape))
        for number, t in enumerate(operands)
    ]
    shape = tuple(domain) if domain is not None else operands[0].shape
    elements = [t.element for t in operands], [t.element for t in results]
    body = written(trace(types, formula), *elements)
    made = Kernel(kind, "cpu", body, shape, reduced, tuple(operands), tuple(results))
    made.verify()
    return made


def random_values(element: str, shape: Sequence[int], seed: int) -> Array:
    """Numbers of a type around 1."""
    rng = np.random.default_rng(seed)
    if element == "i1":
        return rng.random(shape) < 0.5
    if element in ("i32", "i64"):
        return rng.integers(-9, 9, shape).astype(NUMPY[element])
    return rng.standard_normal(shape).astype(np.float32).astype(NUMPY[element])


def expected(kernel: Kernel, operands: Sequence[Array]) -> list[Array]:
    """The results of the interpreter, in float64 where they are floats."""
    wide: list[Array] = []
    for array, layout, type_ in zip(operands, kernel.operands, kernel.body.args, strict=True):
        if not is_table(type_):  # one element where it repeats
            array = array[tuple(slice(None) if stride else slice(0, 1) for stride in layout.strides)]
        exact = array.dtype in (np.bool_, np.int32, np.int64)
        with np.errstate(invalid="ignore"):  # NaN of 16 bits
            wide.append(array if exact else array.astype(np.float64))
    shapes = [result.shape for result in kernel.results]
    return evaluate(kernel.body, wide, kernel.domain, list(kernel.reduced_dims), shapes)


def check(
    kernel: Kernel,
    values: Sequence[Array] | None = None,
    loaded: Loaded | None = None,
    scale: float = 1.0,
    cuts: Sequence[int] = (1, 3),
) -> list[Array]:
    """Run a kernel in one range and in several; the results are the same bits, and those of the interpreter.

    `scale` multiplies the tolerance, which is relative to the result and to 1. Gives the results.
    """
    if values is None:
        values = [random_values(t.element, t.shape, n) for n, t in enumerate(kernel.operands)]
    operands = [placed(t, value).array for t, value in zip(kernel.operands, values, strict=True)]
    run = loaded or Loaded(kernel)
    outcomes: list[list[Array]] = []
    for number in cuts:
        results = [placed(t) for t in kernel.results]
        run([*operands, *(result.array for result in results)], number)
        assert all(result.untouched() for result in results), "written beside the elements"
        outcomes.append([result.array for result in results])
    for other in outcomes[1:]:
        for one, two in zip(outcomes[0], other, strict=True):
            assert one.tobytes() == two.tobytes(), "the bits depend on the ranges"
    for result, array, right in zip(kernel.results, outcomes[0], expected(kernel, operands), strict=True):
        if result.element in ("i1", "i32", "i64"):
            np.testing.assert_array_equal(array, right)
        else:
            tolerance = TOLERANCE[result.element] * scale
            with np.errstate(all="ignore"):
                rounded = right.astype(NUMPY[result.element]).astype(np.float64)
            np.testing.assert_allclose(
                array.astype(np.float64), rounded, rtol=tolerance, atol=tolerance, equal_nan=True
            )
    return outcomes[0]
