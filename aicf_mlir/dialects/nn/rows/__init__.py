"""THE table of pointwise ops: one row an op. Classes, gradients, meanings and kernels follow from it."""

from __future__ import annotations

from aicf_mlir.dialects.nn.rows import activations, arithmetic, comparisons, functions
from aicf_mlir.dialects.nn.rows.row import Pointwise

__all__ = ["ROWS", "Pointwise"]

ROWS: dict[str, Pointwise] = {
    row.name: row for row in (*arithmetic.ROWS, *functions.ROWS, *activations.ROWS, *comparisons.ROWS)
}
"""The rows by name; `nn.softplus` is the op of the row `softplus`."""
