"""Two results of one program side by side, for `aicf-run --compare=interp`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aicf_mlir.interpreters.numerics import Array
from aicf_mlir.tools.tensors import table

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}
"""Largest difference by dtype, in units of the largest magnitude of the tensor (at least `SMALLEST`)."""

SMALLEST = 1e-6


def compare(
    ours: Mapping[str, Array], reference: Mapping[str, Array], tolerance: float | None = None
) -> tuple[str, bool]:
    """A table of the largest difference of each tensor, and whether all are within tolerance."""
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
    """The largest difference relative to the largest magnitude; infinite if types or NaN and Inf differ."""
    if (ours.dtype, ours.shape) != (reference.dtype, reference.shape):
        return np.inf
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    a, b = a[finite], b[finite]
    return float(np.abs(a - b).max() / max(np.abs(b).max(), SMALLEST))
