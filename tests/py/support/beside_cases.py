"""Kernels of rows that lie side by side: reductions over dimensions in the middle, whose neighbours in memory are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from bodies import kernel_of
from generated_cases import GeneratedCase, dense, fill, make

from aicf_mlir.interpreters.numerics import NUMPY_TYPES
from aicf_mlir.ir import formula as F
from aicf_mlir.kernels.kernel import Kernel, Tensor


def total(x: Any) -> Any:
    """The sum."""
    return F.row_sum(x)


def largest(x: Any) -> Any:
    """The largest, and twice it."""
    return F.row_max(x), F.row_max(x) * 2.0


def softmax(x: Any) -> Any:
    """Of what is read again, or held."""
    e = F.exp(x - F.row_max(x))
    return e / F.row_sum(e)


def shared(x: Any, y: Any, dy: Any) -> Any:
    """The gradient of the largest: equal elements share it."""
    is_largest = F.select(x.equal(y), x.of(1.0), 0.0)
    return dy * is_largest / F.row_sum(is_largest)


def mixed(x: Any, by_row: Any, by_column: Any) -> Any:
    """Operands that repeat along rows or columns, results before and after the sums, and one that is the same along a row."""
    s = x * by_column + by_row
    mean = F.row_sum(s) * 0.125
    centred = s - mean
    return s, centred * F.rsqrt(F.row_sum(centred * centred) + 1.0), mean, mean * by_row


NAMES: dict[str, tuple[Callable[..., Any], str, str]] = {
    "total": (total, "w", "r"),
    "largest": (largest, "w", "rr"),
    "softmax": (softmax, "w", "w"),
    "shared": (shared, "wrr", "w"),
    "mixed": (mixed, "wrc", "wwrr"),
}
"""The formula, and the layouts of operands and results: whole, one number a row, one a column."""


def beside(name: str, element: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> Kernel:
    """A kernel over `dims` of dense tensors of `shape`: the kept dimensions come first in its domain."""
    formula, taken, given = NAMES[name]
    kept = [dim for dim in range(len(shape)) if dim not in dims]
    domain = tuple(shape[dim] for dim in (*kept, *dims))
    rows = domain[: len(kept)]
    strides = dense(element, *shape).strides
    wider = "f64" if element == "f64" else "f32"
    layouts = {
        "w": Tensor(element, domain, tuple(strides[dim] for dim in (*kept, *dims))),
        "r": Tensor(element, domain, (*dense(element, *rows).strides, *(0 for _ in dims))),
        "c": Tensor(wider, domain, (*(0 for _ in rows), *dense(wider, *domain[len(kept) :]).strides)),
    }
    operands = [layouts[letter] for letter in taken]
    results = [layouts["w"] if letter == "w" else dense(element, *rows) for letter in given]
    return replace(kernel_of("rowwise", formula, operands, results, reduced=len(dims)), target="sm_90")


def beside_case(name: str, element: str, shape: tuple[int, ...], dims: tuple[int, ...]) -> GeneratedCase:
    """Such a kernel on random operands; of the gradient of the largest, one element or several are the largest."""
    kernel, rng = beside(name, element, shape, dims), np.random.default_rng(prod(shape))
    label = f"{name} {element} {shape} {dims}"
    if name != "shared":
        return make(label, kernel, rng)
    x = rng.integers(-4, 5, shape).astype(NUMPY_TYPES[element])
    dy = fill(rng, kernel.operands[2])
    return make(label, kernel, rng, [x.ravel(), x.max(axis=dims).ravel(), dy])
