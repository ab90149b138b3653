"""Samples of the checks: what passes, what fails where, and a status that has failed before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.interpreters.numerics import Array
from samples.sample import Fill, Sample, classes, value

INDICES: tuple[tuple[str, int | None, tuple[int, ...]], ...] = (
    ("in range", None, ()),
    ("ignored", -100, (-100, 4, -100)),
    ("too large", -100, (0, 5, 6)),
    ("negative", -100, (0, 1, 2, -1)),
    ("not ignored", None, (-100,)),
    ("far away", 7, (7, 2**40)),
)
"""Name, ignored index, and the first targets of five classes."""

NUMBERS: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = (
    ("finite", (0.0, -0.0, 1e-40), (1.0,)),
    ("nan", (0.0, float("nan"), float("inf")), (1.0,)),
    ("inf in the second", (1.0,), (0.5, 0.25, float("inf"))),
    ("-inf before nan", (1.0, float("-inf")), (float("nan"),)),
)
"""Name, and the first elements of two tensors."""

FAILED_BEFORE = (9, 2, -7)


def numbers(*first: float) -> Fill:
    """These numbers, then ones."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        del rng
        values = np.ones(shape)
        values.flat[: len(first)] = first
        return values

    return fill


def status_of(before: Any, code: int, failed: Any, what: Any) -> Any:
    """The status after a check: where it first failed, unless it had before."""
    places = failed.flatten().nonzero().flatten().tolist()
    if int(before[0]) != 0:
        return before
    at = places[0] if places else 0
    return torch.tensor([code, at, int(what.flatten()[at])] if places else [0, 0, 0])


def index_sample(name: str, target: str, ignored: int | None, before: Fill, targets: Fill) -> Sample:
    """One check of targets of five classes."""

    def build(status: Any, target: Any) -> Operation:
        return nn.CheckIndexOp(status, target, 5, 3, ignored)

    def check(status: Any, target: Any) -> Any:
        refused = (target < 0) | (target >= 5)
        return status_of(status, 3, refused if ignored is None else refused & (target != ignored), target)

    return Sample(name, ("3xi64", target), build, check, {0: before, 1: targets}, smooth=False)


def check_index() -> list[Sample]:
    """Both widths of integers, any shape."""
    samples = [
        index_sample(name, "7xi64", ignored, value(0.0), classes(5, *first))
        for name, ignored, first in INDICES
    ]
    again = index_sample("failed before", "7xi64", None, numbers(*FAILED_BEFORE), classes(5, 8))
    shaped = index_sample("matrix of i32", "2x3xi32", 7, value(0.0), numbers(0, 1, 2, 3, 7, -1))
    return [*samples, again, shaped]


def check_finite() -> list[Sample]:
    """The first of two tensors that is not finite."""

    def build(status: Any, x: Any, y: Any) -> Operation:
        return nn.CheckFiniteOp(status, [x, y], 4)

    def check(status: Any, x: Any, y: Any) -> Any:
        for code, tensor in ((4, x), (5, y)):
            status = status_of(status, code, ~tensor.isfinite(), tensor.sign().nan_to_num(0.0))
        return status

    operands = ("3xi64", "2x3xf32", "3xf32")
    samples = [
        Sample(name, operands, build, check, {0: value(0.0), 1: numbers(*x), 2: numbers(*y)}, smooth=False)
        for name, x, y in NUMBERS
    ]
    again = {0: numbers(*FAILED_BEFORE), 1: numbers(float("nan"))}
    return [*samples, Sample("failed before", operands, build, check, again, smooth=False)]


def check_ranks() -> list[Sample]:
    """Nothing, one or several ranks whose checks have failed; the first check counts."""

    def build(status: Any, of_ranks: Any) -> Operation:
        return nn.CheckRanksOp(status, of_ranks, 6)

    def check(status: Any, of_ranks: Any) -> Any:
        del status
        failed = [(int(row[0]), rank) for rank, row in enumerate(of_ranks) if int(row[0]) != 0]
        if not failed:
            return torch.zeros(3, dtype=torch.int64)
        rank = min(failed)[1]
        return of_ranks[rank] + torch.tensor([6 * rank, 0, 0])

    found = {
        "no rank failed": (),
        "the first failed": FAILED_BEFORE,
        "the last failed": (*[0] * 6, 5, 2**40, -1),
        "the later rank failed first": (*[0] * 3, 3, 1, 0, 2, 4, 5),
        "two at one check": (4, 7, 8, *[0] * 3, 4, 9, 1),
    }
    operands = ("3xi64", "3x3xi64")
    return [
        Sample(name, operands, build, check, {0: value(0.0), 1: rows_of(*first)}, smooth=False)
        for name, first in found.items()
    ]


def rows_of(*first: int) -> Fill:
    """These numbers, then zeros."""

    def fill(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        del rng
        values = np.zeros(shape)
        values.flat[: len(first)] = first
        return values

    return fill


VALUES: dict[str, tuple[str, tuple[float, ...], tuple[float, ...]]] = {
    "probability": ("f32", (0.0, -0.0, 1.0, 0.25), (0.5, 1.5, float("nan"), -0.25)),
    "deviation": ("f32", (0.0, -0.0, 1e-40, float("inf")), (1.0, float("nan"), -1.0)),
    "divisor": ("i64", (1, -3, 2**40), (1, 0, 0)),
    "condition": ("i1", (1, 1), (1, 0, 1)),
}
"""By rule: an element type, what is taken, and what is refused somewhere."""

REFUSES: dict[str, Callable[[Any], Any]] = {
    "probability": lambda x: ~((x >= 0) & (x <= 1)),
    "deviation": lambda x: ~(x >= 0),
    "divisor": lambda x: x == 0,
    "condition": lambda x: x == 0,
}


def check_value() -> list[Sample]:
    """Each rule on what it takes and on what it refuses, and a status that has failed before."""
    samples: list[Sample] = []
    for rule, (element, *both) in VALUES.items():

        def build(status: Any, x: Any, rule: str = rule) -> Operation:
            return nn.CheckValueOp(status, x, rule, "a function", 3)

        def check(status: Any, x: Any, rule: str = rule) -> Any:
            failed = REFUSES[rule](x)
            return status_of(status, 3, failed, failed)

        def refused(x: Any, rule: str = rule) -> Operation:
            return nn.RefusedOp(x, rule)

        types = ("3xi64", f"2x3x{element}")
        fills = {name: numbers(*values) for name, values in zip(("taken", "refused"), both, strict=True)}
        for name, fill in fills.items():
            samples.append(
                Sample(f"{rule} {name}", types, build, check, {0: value(0.0), 1: fill}, smooth=False)
            )
            samples.append(
                Sample(f"{rule} {name}", types[1:], refused, REFUSES[rule], {0: fill}, smooth=False)
            )
        before = {0: numbers(*FAILED_BEFORE), 1: fills["refused"]}
        samples.append(Sample(f"{rule} before", types, build, check, before, smooth=False))
    return samples
