"""Rows with a boolean for each element."""

from __future__ import annotations

import math

from aicf_mlir.dialects.nn.rows.row import ALL, Pointwise
from aicf_mlir.ir.formula import absolute


def comparison(name: str, doc: str, method: str) -> Pointwise:
    """A comparison by one of Python's methods."""
    return Pointwise(
        name,
        doc,
        lambda x, y: getattr(x, method)(y),
        ("x", "y"),
        takes=ALL,
        result="i1",
        differentiable=False,
    )


ROWS = (
    comparison("eq", "Whether x and y are equal; false beside a NaN.", "equal"),
    comparison("ne", "Whether x and y differ; true beside a NaN.", "differs"),
    comparison("lt", "Whether x < y.", "__lt__"),
    comparison("le", "Whether x <= y.", "__le__"),
    comparison("gt", "Whether x > y.", "__gt__"),
    comparison("ge", "Whether x >= y.", "__ge__"),
    Pointwise("isnan", "Whether x is a NaN.", lambda x: x.is_nan(), result="i1", differentiable=False),
    Pointwise(
        "isinf",
        "Whether x is an infinity.",
        lambda x: absolute(x).equal(math.inf),
        result="i1",
        differentiable=False,
    ),
    Pointwise(
        "isfinite",
        "Whether x is a finite number.",
        lambda x: absolute(x) < math.inf,
        result="i1",
        differentiable=False,
    ),
)
