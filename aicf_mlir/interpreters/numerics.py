"""Arrays of the interpreters: NumPy dtypes of the element types, float64 inside, one rounding at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from aicf_mlir.ir.element_types import DTYPES
from aicf_mlir.ir.layouts import Layout

Array = npt.NDArray[Any]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    row.name: np.dtype(getattr(ml_dtypes, row.library, row.library)) for row in DTYPES
}
"""The NumPy type by the runtime's name of the element type."""

ELEMENTS = {dtype: name for name, dtype in NUMPY_TYPES.items()}
"""The names again."""

FLOATS = frozenset(row.name for row in DTYPES if row.is_float)


BLOCK = 1 << 16
"""The elements of a part of `by_blocks`: half a megabyte of float64."""


def precision(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The precision of a floating-point dtype: the unit in the last place of 1.0, and the smallest positive number."""
    limits = cast(Any, ml_dtypes.finfo)(dtype)
    return float(limits.eps), float(limits.smallest_subnormal)


def compute_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that kernels compute in for tensors of `dtype`: float64 for float64, float32 for the other floats."""
    return NUMPY_TYPES["f64" if dtype == np.float64 else "f32"]


def overflowing(values: Array, element: str) -> Array:
    """`values`, infinite if out of the range of the type that kernels compute in for `element`."""
    largest = float(np.finfo(compute_type(NUMPY_TYPES[element])).max)
    return np.where(np.abs(values) > largest, np.copysign(np.inf, values), values)


def places(block: Array, layout: Layout) -> Array:
    """The elements of a 1-D `block` at `layout`, which must be inside; they share its memory.

    The elements of the block may be apart themselves: NumPy's `reshape(-1)` of a column is a view.
    """
    (step,) = block.strides
    strides = [stride * step for stride in layout.strides]
    return np.lib.stride_tricks.as_strided(block[layout.offset :], layout.shape, strides)


def widen(array: Array) -> Array:
    """Floats as float64; integers and booleans as they are."""
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


def pairwise_sum(values: Array, axes: Sequence[int], keepdims: bool = False) -> Array:
    """The sum over `axes`; 0.0 for no numbers, and for zeros of either sign.

    The sum is pairwise (Higham, The accuracy of floating point summation, 1993): its rounding error grows with the logarithm of
    the count. NumPy adds numbers in order along every axis but the last, and its error in a long sum is larger than that of our
    kernels.
    """
    if any(values.shape[axis] == 0 for axis in axes):
        return np.sum(values, axis=tuple(axes), keepdims=keepdims)
    for axis in axes:
        rows = np.moveaxis(values, axis, 0)
        while (count := len(rows)) > 1:
            half = count // 2
            pairs = rows[:half] + rows[half : 2 * half]
            if count % 2:
                pairs[0] += rows[-1]
            rows = pairs
        values = np.moveaxis(rows, 0, axis)
    return (values if keepdims else np.squeeze(values, tuple(axes))) + 0.0


def round_to(values: Array, element: str) -> Array:
    """`values` in the element type, rounded to nearest even once.

    The conversion of float64 to bfloat16 goes through float32 and so rounds twice. Rounding to odd on the way
    keeps the result that of one rounding.
    """
    with np.errstate(all="ignore"):
        if element == "bf16" and values.dtype == np.float64:
            values = by_blocks(_round_to_odd_f32, values, np.float32)
        return np.asarray(values).astype(NUMPY_TYPES[element])


def by_blocks(function: Callable[[Array], Array], values: Array, dtype: npt.DTypeLike) -> Array:
    """The elementwise function of all values, a part at a time that a core's cache holds: several times faster for millions."""
    results = np.empty(values.shape, dtype)
    before, after = values.reshape(-1), results.reshape(-1)
    for start in range(0, values.size, BLOCK):
        after[start : start + BLOCK] = function(before[start : start + BLOCK])
    return results


def _round_to_odd_f32(values: Array) -> Array:
    nearest = values.astype(np.float32)
    inexact = np.isfinite(values) & (nearest.astype(np.float64) != values)
    bits = nearest.view(np.uint32)
    away = inexact & (np.abs(nearest.astype(np.float64)) > np.abs(values))
    truncated = np.where(away, bits - np.uint32(1), bits)
    return np.where(inexact, truncated | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A scalar function of `math` on arrays of float64."""
    vectorised = np.frompyfunc(function, 1, 1)

    def apply(values: Array) -> Array:
        return np.asarray(vectorised(values)).astype(np.float64)

    return apply


erfc = elementwise(math.erfc)
"""The complementary error function, which NumPy lacks."""

erf = elementwise(math.erf)
"""The error function, likewise; of small numbers to the last digit, as 1 - erfc(x) would not be."""
