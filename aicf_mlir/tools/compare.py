"""Two results of one program side by side, for `aicf-run --compare=interp`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.tools.tensors import table

TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""By dtype: the largest root of the mean square difference, relative to that of the tensor.

Not the largest difference: Adam makes the rounding error of a gradient near zero as large as a step.
"""

SMALLEST = 1e-30
"""Tensors below this count as zero."""


def compare(
    ours: Mapping[str, Array], reference: Mapping[str, Array], tolerance: float | None = None
) -> tuple[str, bool]:
    """A table of the difference of each tensor, and whether all are within tolerance."""
    rows = [("name", "dtype", "difference", "allowed", "verdict")]
    agreed = True
    for name in [*reference, *(name for name in ours if name not in reference)]:
        if name not in ours or name not in reference:
            side = "the interpreter" if name in ours else "the run"
            rows.append((name, "-", "-", "-", f"missing from {side}"))
            agreed = False
            continue
        allowed = TOLERANCES.get(str(ours[name].dtype), 0.0) if tolerance is None else tolerance
        found = difference(ours[name], reference[name])
        agreed &= found <= allowed
        verdict = "ok" if found <= allowed else "DIFFERS"
        rows.append((name, str(ours[name].dtype), f"{found:.3g}", f"{allowed:.3g}", verdict))
    return table(rows), agreed


def difference(ours: Array, reference: Array) -> float:
    """Root mean square of the difference relative to the reference; infinite if types, NaN or Inf differ."""
    if (ours.dtype, ours.shape) != (reference.dtype, reference.shape):
        return np.inf
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return np.inf
    error, size = _root_mean_square(a[finite] - b[finite]), _root_mean_square(b[finite])
    return error / max(size, SMALLEST)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
