"""Places in sorted sequences: torch's for sorted and unsorted numbers, NaN and infinities, and in steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from beside_torch import assert_trains
from torch import Tensor, nn

from aicf_mlir import TraceError, trace
from aicf_mlir.frontend.sorted_places import bucketize, searchsorted

NUMBERS = torch.tensor([-1.0, 0.0, -0.0, 0.5, 0.5, 2.0, math.inf, -math.inf, math.nan, 0.25, 7.0, -3.0])
SPECIAL = torch.tensor([-math.inf, -1.0, 0.0, 0.0, 0.5, math.inf, math.nan, math.nan])

SEQUENCES: dict[str, Tensor] = {
    "sorted": torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0]),
    "one": torch.tensor([0.5]),
    "special": SPECIAL,
    "unsorted": torch.tensor([2.0, -1.0, math.nan, 0.5, 0.0, 7.0, -3.0]),
    "whole numbers": torch.tensor([-1, 0, 0, 2, 5]),
    "f64": torch.tensor([-1.0, 0.1, 0.5], dtype=torch.float64),
}


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("name", SEQUENCES)
def test_places_are_those_of_torch(name: str, right: bool) -> None:
    sequence = SEQUENCES[name]
    values: list[Any] = [NUMBERS, NUMBERS.view(3, 4), NUMBERS[1], NUMBERS.nan_to_num().long(), 0.5, 2]
    for each in values:
        for narrow in (False, True):
            got = searchsorted(sequence, each, right=right, out_int32=narrow)
            wanted = torch.searchsorted(sequence, each, right=right, out_int32=narrow)
            assert torch.equal(got, wanted)
            assert got.dtype is wanted.dtype
        assert torch.equal(
            bucketize(each, sequence, right=right), torch.bucketize(each, sequence, right=right)
        )


def test_rows_and_sorters() -> None:
    rows = torch.randn(3, 2, 7)
    order, values = rows.argsort(-1), torch.randn(3, 2, 5)
    for side in ("left", "right"):
        got = searchsorted(rows, values, sorter=order, side=side)
        assert torch.equal(got, torch.searchsorted(rows, values, sorter=order, side=side))
    assert torch.equal(
        searchsorted(rows.sort().values, values), torch.searchsorted(rows.sort().values, values)
    )


Function = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


def sampled(h: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    """Numbers drawn from a histogram by its inverse, as a radiance field places its fine samples."""
    edges = torch.cat([torch.zeros(len(h), 1, dtype=h.dtype), h.softmax(-1).cumsum(-1)], -1)
    above = torch.searchsorted(edges, batch["t"].sigmoid(), right=True).clamp(max=edges.shape[-1] - 1)
    low, high = edges.gather(-1, above - 1), edges.gather(-1, above)
    return (batch["t"].sigmoid() - low) / (high - low + 1e-3) + above


STEPS: dict[str, Function] = {
    "a histogram's inverse": sampled,
    "bins": lambda h, b: h * torch.bucketize(b["t"], torch.tensor([-1.0, -0.25, 0.5], dtype=h.dtype)),
    "of a number": lambda h, b: h * torch.searchsorted(b["t"][0].sort().values, 0.1),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_trains_as_in_torch(name: str) -> None:
    def loss(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        return STEPS[name](model(batch["x"]), batch).square().mean()

    torch.manual_seed(0)
    batch = {name: torch.randn(6, 4, dtype=torch.float64) for name in ("x", "t")}
    assert_trains(nn.Linear(4, 4).double(), loss, batch, 1e-9)


REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "side": (
        lambda x: torch.searchsorted(x[0], x, side="up"),
        'expected "left" or "right" as side, got \'up\'',
    ),
    "sides": (lambda x: torch.searchsorted(x[0], x, right=True, side="left"), "expected right=False"),
    "rows": (
        lambda x: torch.searchsorted(x[:2], x),
        r"sequences of shape \[2, 4\] and values of shape \[3, 4\]",
    ),
    "no sequence": (
        lambda x: torch.searchsorted(x.sum(), x[0]),
        r"sequences of shape \[\] and values",
    ),
    "sorter": (
        lambda x: torch.searchsorted(x[0], x, sorter=torch.arange(3)),
        r"of the sequences, \[4\], got \[3\]",
    ),
    "boundaries": (lambda x: torch.bucketize(x, x), r"boundaries in one dimension, got shape \[3, 4\]"),
    "booleans": (lambda x: torch.searchsorted(x[0] > 0, x > 0), r"not defined for torch\.bool"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_call_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(TraceError, match=message):
        trace(nn.Linear(4, 4), lambda m, b: (m(b["x"]) * call(b["x"])).sum(), {"x": torch.randn(3, 4)})
