"""The allowed distance of a result from the reference: the effect of rounding alone on this very program.

The reference interpreter runs again on arguments that are moved by up to two units in the last place, and moves the operands of
each op as much. A result may be as far off as the worst of those runs, three times over, plus 25 units in the last place of its
scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf_mlir.interpreters.arithmetic import Disturbed
from aicf_mlir.interpreters.numerics import FLOATS, Array, precision, widen

RUNS = 4
"""The number of perturbed runs. In every second one equal values move alike: the error of a mean counts in each element that it
is taken from, and a sum of all of them is off by as much.
"""

FACTOR = 3.0
UNITS_IN_LAST_PLACE = 25.0
EXACT = 1e-12
"""The relative error allowed in f64: hyperparameters, for which pow and the order of products may differ."""


def disturbed(seed: int) -> Disturbed:
    """The arithmetic of a perturbed run."""
    return Disturbed(seed, alike=seed % 2 == 1)


def perturbed(values: Array, dtype: str, rng: np.random.Generator) -> Array:
    """Return `values` moved by up to two units in the last place; counters and other whole numbers stay."""
    if dtype not in FLOATS or not values.size or np.array_equal(widen(values), np.rint(widen(values))):
        return values
    units = rng.integers(-2, 3, values.shape) * _eps(values)
    return np.asarray(widen(values) * (1 + units)).astype(values.dtype)


def fault(ours: Array, expected: Array, runs: Sequence[Array]) -> str | None:
    """Return the reason why `ours` is not `expected` up to rounding, or None; `runs` are the results of perturbed runs."""
    if (ours.dtype, ours.shape) != (expected.dtype, expected.shape):
        return f"{ours.dtype}{list(ours.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if (
        expected.dtype.kind in "iub"
    ):  # if rounding decides, as for the place of a largest element, any is right
        decided = [run == expected for run in runs]
        return None if np.all((ours == expected) | ~np.logical_and.reduce(decided)) else "other integers"
    a, b = widen(ours), widen(expected)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return "NaN or infinity at other places"
    for run in runs:
        finite &= np.isfinite(widen(run))
    scale = _rms(b[finite])
    spread = max((_rms(widen(run)[finite] - b[finite]) for run in runs), default=0.0)
    units = max(UNITS_IN_LAST_PLACE * _eps(expected), EXACT)
    error, allowed = _rms(a[finite] - b[finite]), FACTOR * spread + units * scale
    return None if error <= allowed else f"error {error:.3g}, allowed {allowed:.3g} at scale {scale:.3g}"


def _eps(values: Array) -> float:
    return precision(values.dtype)[0]


def _rms(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(values**2))) if values.size else 0.0
