"""The comparison of a run with the meaning of its program, for `aicf-run --compare=interp`.

The tolerance for rounding comes from the interpreter. It is run with every op rounded to its type, and again with the operands of
every op slightly disturbed, as by another order of summation. The deviations of these runs from the exact meaning, in float64
throughout, are measured. A run may deviate three times as much, plus some units in the last place of the tensor's scale: 25 of
the type that kernels compute in and 2 of its own. These allow for runs whose roundings were lucky.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aicf_mlir.interpreters.arithmetic import EXACT, ROUNDED, Arithmetic, Disturbed, compute_epsilon
from aicf_mlir.interpreters.numerics import Array, precision
from aicf_mlir.ir.signature import Key
from aicf_mlir.tools.tensors import table

FACTOR = 3.0
UNITS_COMPUTED, UNITS_STORED = 25.0, 2.0
DISTURBED_RUNS = 3

SQUARED = "_sq"
"""Ends the name of states that hold squares; they are compared by their roots: squares double relative errors."""

SMALLEST = 1e-300
"""Scales below this count as zero."""

Values = Mapping[Key, Array]


@dataclass(frozen=True)
class Reference:
    """The meaning of a program, and the size of its rounding errors."""

    rounded: Values
    exact: Values
    disturbed: Sequence[Values]

    @staticmethod
    def of(interpret: Callable[[Arithmetic], Values]) -> Reference:
        """The reference from running `interpret` in every arithmetic."""
        disturbed = [interpret(Disturbed(seed)) for seed in range(DISTURBED_RUNS)]
        disturbed.append(interpret(Disturbed(0, alike=True)))
        return Reference(interpret(ROUNDED), interpret(EXACT), disturbed)

    def judge(self, key: Key, ours: Array) -> tuple[float, float]:
        """The difference of a result from its meaning, and the allowed difference, both relative to its scale."""
        rounded, exact = self.rounded[key], self.exact[key]
        if (ours.dtype, ours.shape) != (rounded.dtype, rounded.shape):
            return np.inf, 0.0
        if ours.dtype.kind in "iub":
            return (0.0 if np.array_equal(ours, rounded) else np.inf), 0.0
        runs = [_wide(key, values[key]) for values in (self.rounded, *self.disturbed)]
        a, b = _wide(key, ours), _wide(key, exact)
        settled = np.ones(a.shape, bool)
        for run in runs[1:]:
            settled &= _same_kind(run, runs[0])
        if not _same_kind(a, runs[0])[settled].all():
            return np.inf, 0.0
        finite = settled & np.isfinite(a) & np.isfinite(b)
        epsilon, smallest = precision(ours.dtype)
        slack = UNITS_COMPUTED * compute_epsilon(ours.dtype) + UNITS_STORED * epsilon
        scale = max(_root_mean_square(b[finite]), SMALLEST)
        carried = max(_root_mean_square(run[finite] - b[finite]) for run in runs)
        allowed = FACTOR * carried + max(slack * scale, UNITS_STORED * smallest)
        return _root_mean_square(a[finite] - b[finite]) / scale, allowed / scale


def _wide(key: Key, values: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        return np.sqrt(wide) if key[0] == "state" and key[1].endswith(SQUARED) else wide


def _same_kind(a: Array, b: Array) -> Array:
    """True for elements that are both finite, both NaN, or both the same infinity."""
    finite = np.isfinite(a) & np.isfinite(b)
    return finite | (np.isnan(a) & np.isnan(b)) | ((a == b) & ~np.isfinite(a))


def _root_mean_square(values: Array) -> float:
    """Scaled by the largest magnitude, so that squares neither overflow nor vanish."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return largest * float(np.sqrt(np.mean((values / largest) ** 2))) if largest else 0.0


def difference(ours: Array, reference: Array) -> float:
    """Root mean square of the difference relative to the reference; infinite if types, NaN or Inf differ."""
    if (ours.dtype, ours.shape) != (reference.dtype, reference.shape):
        return np.inf
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    if not _same_kind(a, b).all():
        return np.inf
    finite = np.isfinite(b)
    return _root_mean_square(a[finite] - b[finite]) / max(_root_mean_square(b[finite]), SMALLEST)


def compare(
    ours: Values, reference: Reference, names: Mapping[Key, str], tolerance: float | None = None
) -> tuple[str, bool]:
    """A table of the difference of each tensor, and True if all are allowed.

    `names` are those to show. A `tolerance` allows that difference from the rounded meaning instead.
    """
    rows = [("name", "dtype", "difference", "allowed", "verdict")]
    agreed = True
    for key in [*reference.rounded, *(key for key in ours if key not in reference.rounded)]:
        if key not in ours or key not in reference.rounded:
            side = "the interpreter" if key in ours else "the run"
            rows.append((names[key], "-", "-", "-", f"missing from {side}"))
            agreed = False
            continue
        if tolerance is None:
            found, allowed = reference.judge(key, ours[key])
        else:
            found, allowed = difference(ours[key], reference.rounded[key]), tolerance
        agreed &= found <= allowed
        verdict = "ok" if found <= allowed else "DIFFERS"
        rows.append((names[key], str(ours[key].dtype), f"{found:.3g}", f"{allowed:.3g}", verdict))
    return table(rows), agreed
