"""THE table of torch's checks of values at run time: a step with a refused value fails as a whole.

A row is data: the refused numbers, as a formula of one element. One op checks them all, by one generated launch that marks each
refused element and one that looks for the first. Indices have a check of their own, with bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aicf_mlir.dialects.nn.rows.row import BOOLEANS, FLOATS, INTEGERS
from aicf_mlir.ir.formula import Scalar


@dataclass(frozen=True)
class ValueRule:
    """The requirement on each element, in words, and the test for elements that violate it."""

    name: str
    wanted: str
    refuses: Callable[[Scalar], Scalar]
    takes: frozenset[str] = FLOATS


RULES = {
    rule.name: rule
    for rule in (
        ValueRule("probability", "a number from 0 to 1", lambda x: ~((x >= 0.0) & (x <= 1.0))),
        ValueRule("deviation", "a number that is not negative", lambda x: ~(x >= 0.0)),
        ValueRule("divisor", "a whole number that is not 0", lambda x: x.equal(0), INTEGERS),
        ValueRule("pivot", "a matrix that is not singular, with pivots other than 0", lambda x: x.equal(0.0)),
        ValueRule(
            "positive pivot",
            "a positive-definite matrix, with pivots above 0",
            lambda x: ~(x > 0.0),
        ),
        ValueRule("condition", "it to hold", lambda x: ~x, BOOLEANS),
    )
}
"""The rules by name. A NaN is refused where torch refuses it: by all rows of floats here."""
