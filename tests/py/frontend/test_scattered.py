"""scatter_reduce, index_reduce and segment_reduce with all reductions, trained beside torch: ties and zeros as well."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from beside_torch import compiled
from trained_ops import Function, OfOp, assert_op_trains, weighed

from aicf_mlir import DataError, OutOfRangeError, TraceError

ROWS = 5


def batch() -> dict[str, torch.Tensor]:
    """Places, some of them often and some never; values with ties and zeros; lengths of segments, one of them empty."""
    drawn = torch.Generator().manual_seed(3)
    return {
        "down": torch.randint(4, (7, 8), generator=drawn),
        "along": torch.randint(8, (5, 3), generator=drawn),
        "rows": torch.tensor([3, 0, 3, 1, 4, 3, 0]),
        "values": torch.randn(7, 8, generator=drawn),
        "coarse": torch.randint(-1, 2, (7, 8), generator=drawn).float(),
        "lengths": torch.tensor([2, 0, 3]),
        "offsets": torch.tensor([0, 1, 1, 5]),
        "each": torch.tensor([[3, 5], [0, 8], [8, 0], [4, 4], [1, 7]]),
    }


def reducing(reduce: str, own: bool) -> dict[str, Function]:
    """Uses of one reduction by an index, with the elements that are there or without."""

    def few(x: Any, b: Any) -> Any:
        """x[0] or 0, with a gradient: ties and zeros."""
        return x[0] - x[0].detach() * (b["coarse"] == 0)

    def rows(b: Any) -> Any:
        return b["rows"][:, None].expand(-1, 8)

    found: dict[str, Function] = {
        "elements": lambda x, b: x.scatter_reduce(0, b["down"], b["values"] * x[0], reduce, include_self=own),
        "a part": lambda x, b: x.scatter_reduce(1, b["along"][:4], (x * 2)[:4, :3], reduce, include_self=own),
        "rows": lambda x, b: x.scatter_reduce(0, rows(b), b["values"] * x[0], reduce, include_self=own),
        "ties": lambda x, b: x.scatter_reduce(0, b["down"], few(x, b), reduce, include_self=own),
    }
    if reduce != "sum":
        found["index_reduce"] = lambda x, b: x.index_reduce(
            0, b["rows"], b["values"] * x[0], reduce, include_self=own
        )
    how = "with its own" if own else "alone"
    return {f"{reduce} {how} {name}": function for name, function in found.items()}


def segmenting(reduce: str, initial: float | None) -> dict[str, Function]:
    """Uses of one reduction of segments."""

    def segments(x: Any, **given: Any) -> Any:
        return torch.segment_reduce(x, reduce, initial=initial, **given).nan_to_num(0, 0, 0)

    return {
        f"{reduce} {initial}": lambda x, b: segments(x, lengths=b["lengths"]),
        f"{reduce} {initial} offsets": lambda x, b: segments(x, offsets=b["offsets"]),
        f"{reduce} {initial} each": lambda x, b: segments(x, lengths=b["each"], axis=1),
    }


KINDS = product(("sum", "mean", "prod", "amax", "amin"), (True, False))
REDUCED = {name: each for kind in KINDS for name, each in reducing(*kind).items()}
OF_SEGMENTS = product(("sum", "mean", "prod", "max", "min"), (None, 0.25))
SEGMENTS = {name: each for kind in OF_SEGMENTS for name, each in segmenting(*kind).items()}

AGGREGATIONS: dict[str, Function] = {
    # as torch_geometric's `scatter` has them
    "max": lambda x, b: x.new_zeros(6, 8).scatter_reduce_(
        0, b["rows"][:, None].expand(-1, 8), b["values"] * x[0], reduce="amax", include_self=False
    ),
    "relu max": lambda x, b: x.new_zeros(6, 8).scatter_reduce_(
        0, b["rows"][:, None].expand(-1, 8), (b["values"] * x[0]).relu(), reduce="amax", include_self=False
    ),
    "mul": lambda x, b: x.new_ones(6, 8).scatter_reduce_(
        0, b["rows"][:, None].expand(-1, 8), b["values"] * x[0], reduce="prod", include_self=True
    ),
}


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_by_an_index_train_as_torch(name: str) -> None:
    assert_op_trains(REDUCED[name], batch())


@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_train_as_torch(name: str) -> None:
    assert_op_trains(SEGMENTS[name], batch())


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_aggregations_of_graphs_train_as_torch(name: str) -> None:
    assert_op_trains(AGGREGATIONS[name], batch(), torch.float32, torch.float64)


@pytest.mark.parametrize("reduce", ("amax", "prod", "mean"))
def test_in_half_precision(reduce: str) -> None:
    assert_op_trains(
        lambda x, b: x.scatter_reduce(0, b["down"], b["values"] * x[0], reduce), batch(), torch.bfloat16
    )


def test_an_index_outside_updates_nothing() -> None:
    torch.manual_seed(1)
    model, good = OfOp(REDUCED["amax alone elements"], torch.float32), batch()
    step = compiled(model, weighed, good)
    step.train_step(good)
    before = model.weight.detach().clone()
    with pytest.raises(OutOfRangeError, match=r"Index 5 is out of bounds .* of the batch's 'down'"):
        step.train_step({**good, "down": good["down"] + 5 - good["down"][0, 0]})
        step.synchronize()
    assert torch.equal(model.weight, before)


def test_lengths_that_are_not_the_row_update_nothing() -> None:
    torch.manual_seed(1)
    model, good = OfOp(SEGMENTS["sum None"], torch.float32), batch()
    step = compiled(model, weighed, good)
    step.train_step(good)
    before = model.weight.detach().clone()
    with pytest.raises(DataError, match="segments that add up to 5"):
        step.train_step({**good, "lengths": torch.tensor([2, 1, 3])})
        step.synchronize()
    assert torch.equal(model.weight, before)


REFUSED: dict[str, tuple[Function, str]] = {
    "integers": (
        lambda x, b: x * b["along"].scatter_reduce(0, b["along"][:, :3] % 5, b["along"], "amax").sum(),
        "amax of int64 by an index; convert to float before",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(TraceError, match=reason):
        compiled(OfOp(function, torch.float32), weighed, batch())
