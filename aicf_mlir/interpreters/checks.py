"""The results of the checks of a step: the status after them, three numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aicf_mlir.interpreters.numerics import Array


def check_index(
    status: Array, targets: Sequence[Array], classes: Sequence[int], ignored: Sequence[int] | None, code: int
) -> Array:
    """The first index of a target that is neither one of its classes nor ignored there, and its position."""
    for i, target in enumerate(targets):
        refused = (target < 0) | (target >= classes[i])
        if ignored is not None:
            refused &= target != ignored[i]
        status = _status(status, code + i, refused, target)
    return status


def check_finite(status: Array, values: Sequence[Array], code: int) -> Array:
    """The first number that is NaN or infinite, and its position: 0, 1 or -1 for NaN and the infinities."""
    for index, value in enumerate(values):
        status = _status(status, code + index, ~np.isfinite(value), np.nan_to_num(np.sign(value), nan=0.0))
    return status


def check_ranks(statuses: Array, code: int) -> Array:
    """The failed status with the least code, of the first rank that has it; the code of rank r grows by r times `code`."""
    failed = [(int(status[0]), rank) for rank, status in enumerate(statuses) if status[0] != 0]
    if not failed:
        return np.zeros(3, np.int64)
    own, rank = min(failed)
    return np.array([own + rank * code, *statuses[rank][1:]], np.int64)


def _status(before: Array, code: int, failed: Array, what: Array) -> Array:
    if before[0] != 0 or not failed.any():
        return before if before[0] != 0 else np.zeros(3, np.int64)
    position = int(np.flatnonzero(failed)[0])
    return np.array([code, position, int(what.flat[position])], np.int64)
