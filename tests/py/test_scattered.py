"""scatter_reduce, index_reduce and segment_reduce with all reductions, trained beside torch: ties and zeros as well."""

from __future__ import annotations

from itertools import product

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


REDUCED: dict[str, Function] = {}
for reduce, own in product(("sum", "mean", "prod", "amax", "amin"), (True, False)):
    named = f"{reduce} {'with its own' if own else 'alone'}"

    def scattered(x, b, reduce=reduce, own=own):
        return x.scatter_reduce(0, b["down"], b["values"] * x[0], reduce, include_self=own)

    def part(x, b, reduce=reduce, own=own):
        return x.scatter_reduce(1, b["along"][:4], (x * 2)[:4, :3], reduce, include_self=own)

    def rows(x, b, reduce=reduce, own=own):
        return x.scatter_reduce(
            0, b["rows"][:, None].expand(-1, 8), b["values"] * x[0], reduce, include_self=own
        )

    def ties(x, b, reduce=reduce, own=own):
        few = x[0] - x[0].detach() * (b["coarse"] == 0)  # x[0] or 0, with a gradient
        return x.scatter_reduce(0, b["down"], few, reduce, include_self=own)

    REDUCED |= {
        f"{named}": scattered,
        f"{named}, a part": part,
        f"{named}, rows": rows,
        f"{named}, ties": ties,
    }
    if reduce != "sum":

        def indexed(x, b, reduce=reduce, own=own):
            return x.index_reduce(0, b["rows"], b["values"] * x[0], reduce, include_self=own)

        REDUCED[f"index_reduce {named}"] = indexed

SEGMENTS: dict[str, Function] = {}
for reduce, initial in product(("sum", "mean", "prod", "max", "min"), (None, 0.25)):

    def segments(x, b, reduce=reduce, initial=initial):
        return torch.segment_reduce(x, reduce, lengths=b["lengths"], initial=initial).nan_to_num(0, 0, 0)

    def between(x, b, reduce=reduce, initial=initial):
        return torch.segment_reduce(x, reduce, offsets=b["offsets"], initial=initial).nan_to_num(0, 0, 0)

    def each(x, b, reduce=reduce, initial=initial):
        return torch.segment_reduce(x, reduce, lengths=b["each"], axis=1, initial=initial).nan_to_num(0, 0, 0)

    SEGMENTS |= {
        f"{reduce} {initial}": segments,
        f"{reduce} {initial} offsets": between,
        f"{reduce} {initial} each": each,
    }

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
@pytest.mark.sample(6)
def test_reductions_by_an_index_train_as_torch(name: str) -> None:
    assert_op_trains(REDUCED[name], batch())


@pytest.mark.parametrize("name", SEGMENTS)
@pytest.mark.sample(4)
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
    model, good = OfOp(REDUCED["amax alone"], torch.float32), batch()
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
    "long": (
        lambda x, b: x.scatter_reduce(1, (b["along"] * 1).repeat(1, 3000), torch.cat([x] * 1125, 1), "amax"),
        "amax of 9000 elements along the dimension",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(TraceError, match=reason):
        compiled(OfOp(function, torch.float32), weighed, batch())
