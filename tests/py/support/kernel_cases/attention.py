"""Attention with huge scores: a row of a mask that adds 1e4 or 1e9 of either sign, or the least number of the type.

Queries and keys are multiples of a number that lets f32 hold each score exactly, so the rounding of scores is no excuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from kernel_cases.case import Array, Case, Generator, Maker
from kernel_cases.heads import Heads, calls
from kernel_cases.heads import attention as usual
from kernel_cases.heads import attention_grad as usual_grad
from kernel_cases.heads import attention_mask_grad as usual_mask_grad


@dataclass(frozen=True)
class Shift:
    """What is added to rows of scores."""

    amount: float | None
    """None: the least number of the type of the queries, which absorbs every score."""
    step: float
    """Queries and keys are multiples of it."""
    most: int
    """Of the multiples."""

    def of(self, dtype: np.dtype[Any]) -> float:
        """The amount for queries of a type."""
        if self.amount is not None:
            return self.amount
        limits: Any = ml_dtypes.finfo(dtype)
        return float(limits.min)


FINE, COARSE = (1 / 16, 24), (8.0, 1)

SHIFTS = {
    "+1e4": Shift(1e4, *FINE),
    "-1e4": Shift(-1e4, *FINE),
    "+1e9": Shift(1e9, *COARSE),
    "-1e9": Shift(-1e9, *COARSE),
    "least": Shift(None, *FINE),
}


def shifted(heads: Heads, shift: Shift, some: bool) -> Heads:
    """The call with the shift on every row, or on the first row of three."""
    make, rows = heads.make, heads.rows
    dtype = make.cast(0.0).dtype
    amount = shift.of(dtype)
    mask = np.zeros((1, 1, *rows)) if heads.mask is None else added(heads.mask)
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    fits = bool(np.isfinite(make.cast(amount).astype(np.float64)))
    mask = np.broadcast_to(mask, (*mask.shape[:2], rows[0], mask.shape[3])).astype(np.float64)
    chosen = np.arange(rows[0])[:, None] % 3 == 0 if some else np.ones((rows[0], 1), bool)
    with np.errstate(over="ignore"):
        mask = np.where(chosen, mask + amount, mask).astype(dtype if fits else wide)
    multiples = {
        name: make.cast(make.random.integers(-shift.most, shift.most + 1, heads.shape(name)) * shift.step)
        for name in ("query", "key")
    }
    return replace(heads, mask=mask, places={}, fixed=multiples, factor=1.0)


def added(mask: Array) -> Array:
    """What a mask adds, in quarters: f32 holds the sums with scores too."""
    return (
        np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else np.round(mask.astype(np.float64) * 4) / 4
    )


def shifted_calls(make: Maker) -> Iterator[tuple[str, Heads]]:
    """Some shapes with every shift."""
    plain = Heads(make, 2, (2, 1), (35, 67), (16, 8))
    causal = Heads(make, 1, (2, 2), (70, 70), (32, 40), causal=True)
    hidden = replace(plain, mask=make.random.random((2, 1, 35, 67)) > 0.4)
    for name, shift in SHIFTS.items():
        for some in (False, True):
            for heads in (plain, causal, hidden):
                yield f"{name} on {'some' if some else 'all'} rows", shifted(heads, shift, some)


def attention(make: Maker) -> Iterator[Case]:
    """The usual cases, and shifted ones."""
    yield from usual(make)
    for label, heads in shifted_calls(make):
        yield heads.case(label, grad=False)


def attention_grad(make: Maker) -> Iterator[Case]:
    """The same."""
    yield from usual_grad(make)
    for label, heads in shifted_calls(make):
        yield heads.case(label, grad=True)


def every_call(make: Maker) -> Iterator[tuple[str, Heads]]:
    """All usual calls that have finite operands, with every shift."""
    for label, heads in calls(make):
        if not all(np.isfinite(each.astype(np.float64)).all() for each in heads.fixed.values()):
            continue
        if label == "not finite masks" or 0 in heads.rows:
            continue
        for name, shift in SHIFTS.items():
            for some in (False, True):
                yield f"{label}, {name} on {'some' if some else 'all'} rows", shifted(heads, shift, some)


def attention_mask_grad(make: Maker) -> Iterator[Case]:
    """The same, of masks that are added."""
    yield from usual_mask_grad(make)
    for label, heads in shifted_calls(make):
        if heads.has_mask_gradient:
            yield heads.case(label, grad=True, mask_grad=True)


CASES: dict[str, Generator] = {
    "attention": attention,
    "attention_grad": attention_grad,
    "attention_mask_grad": attention_mask_grad,
}
