"""Losses that exchange with other processes by themselves: torch's DistributedDataParallel in f64, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_exchanges import SENSITIVE
from test_data_parallel import NOTHING, found_by


@pytest.mark.usual
@pytest.mark.parametrize("count", [2, 3])
def test_losses_that_exchange_train_as_with_torch(tmp_path: Path, count: int) -> None:
    ranks = found_by("exchanging_losses", count, tmp_path)
    for name in ranks[0]:
        assert len({rank[name]["digest"] for rank in ranks}) == 1, name
        for rank in ranks:
            assert rank[name]["far"] < SENSITIVE.get(name, 2e-6), (name, rank[name])
            assert rank[name]["losses"] < SENSITIVE.get(name, 2e-6), (name, rank[name])
            assert rank[name]["equal"], name


def test_options_of_a_loss_that_exchanges_change_no_bit(tmp_path: Path) -> None:
    ranks = found_by("exchanging_options", 2, tmp_path)
    assert ranks[0] == ranks[1]
    bits = {name: each["digest"] for name, each in ranks[0].items()}
    assert bits["none"] == bits["state"] == bits["gradients"] == bits["checked"], bits
    for name, each in ranks[0].items():
        assert each["far"] < (0.02 if name == "bf16" else 2e-6), (name, each)
    assert ranks[0]["bf16"]["far"] > 1e-4  # rows were rounded


def test_tensors_of_the_loss_function_are_those_of_each_rank(tmp_path: Path) -> None:
    ranks = found_by("own_tensors", 2, tmp_path)
    for number, rank in enumerate(ranks):
        assert rank["far"] < 2e-6
        assert rank["own"] == [1.0 + number, 2.0 + number]
        assert rank["digest"] == ranks[0]["digest"]


def test_exchanges_that_a_step_does_not_follow_are_refused_on_all_ranks(tmp_path: Path) -> None:
    """No rank waits for another that does not come."""
    for number, found in enumerate(found_by("refused_exchanges", 2, tmp_path)):
        for name in ("on one", "other sizes"):
            assert found[name].startswith("RankError: step: the ranks differ: "), found
            assert found[name].endswith(NOTHING), found
        assert found["failing"].startswith(
            "RankError: step: rank 0 cannot go on: TraceError: " if number else "TraceError: "
        )
        assert "on this rank" in found["failing"]
        assert "exchanges values with the processes [0], and the step has [0, 1]" in found["other group"]
        assert f"exchanges values with the processes [0, 1], and the step has [{number}]" in found["no mesh"]
        assert "with parts of different sizes" in found["unequal parts"]
        assert "writes to a tensor with a gradient, which autograd does not record" in found["in place"]
        assert "of which torch has no gradient; gather the values, and reduce them" in found["largest"]
        others = ("sent", "objects", "gathered on one")
        for name in others:
            assert "by a function that is not supported; all_reduce, all_gather," in found[name], found
        for name in ("other group", "no mesh", "unequal parts", "in place", "largest", *others):
            assert found[name].startswith("TraceError: "), (name, found[name])
            assert "exchange" in found[name].split(":")[1], (name, found[name])  # the file
