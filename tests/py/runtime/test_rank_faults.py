"""Faults of one of three processes: a call that fails on one changes nothing on any, one that ends leaves whole steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_faults import EXCHANGES, MANY, MOMENTS, NEVER, STAGES
from ranks import Ended, run_ranks_of
from test_data_parallel import NOTHING, SKIPPED, found_by

RANKS = 3
LIMIT_S = 30
"""No rank waits longer for the others."""
STATUS_BYTES = 24

TOLD: dict[str, dict[int | None, str]] = {
    "label": {None: "OutOfRangeError: step: rank 1: "},
    "nan": {None: "NonFiniteError: step: rank "},
    "shape": {
        0: "BindError: step: no shape group",
        None: "RankError: step: rank 0 cannot go on: BindError: step: no",
    },
    "other plan": {None: "RankError: step: the ranks differ: rank 0 has plan "},
    "guard": {1: "GuardError: ", None: "RankError: step: rank 1 cannot go on: GuardError: "},
    "replay of a bad label": {None: "OutOfRangeError: step: rank 1: "},
    "another call": {
        None: "RankError: step: the ranks differ: rank 0 calls replay(2), rank 1 calls replay(3)"
    },
    "interrupt of all": dict.fromkeys((0, 1, 2, None), "InterruptedError: before the step"),
    "interrupt and shape": {0: "InterruptedError: before the step", None: "BindError: "},
    "long": {1: "BindError: ", None: "RankError: step: "},
    "rate": {None: "RankError: step: the ranks differ: rank 0 has plan "},
    "restore": {None: "RankError: step: the ranks differ: rank 0 calls train_step, rank 1 calls restore"},
    "recompile": {
        None: "RankError: step: the ranks differ: rank 0 calls train_step, rank 1 calls train_step, rank 2 calls"
    },
    "other model": {None: "RankError: step: the ranks differ: rank 0 has "},
    "option": {
        1: "BindError: clip_grad_norm",
        None: "RankError: step: rank 1 cannot go on: BindError: clip_",
    },
}
"""What each rank is told of a fault; None: the ranks that are not named."""

STEPS_OF_ALL = ("interrupt", "interrupt of a replay")
"""The faults that end after whole steps."""


@pytest.mark.parametrize("zero", STAGES)
def test_a_fault_on_one_rank_changes_nothing_on_any(
    tmp_path: Path, pytestconfig: pytest.Config, zero: int
) -> None:
    """Each fault once, and in a campaign a hundred times."""
    times = MANY if pytestconfig.getoption("campaign") else 1
    ranks = found_by(f"faults_{zero}_{times}", RANKS, tmp_path)
    assert [rank["odd"] for rank in ranks] == [[]] * RANKS
    assert max(rank["longest"] for rank in ranks) < LIMIT_S
    assert dict.fromkeys((*TOLD, *STEPS_OF_ALL), times) == ranks[0]["counts"]
    for name, texts in TOLD.items():
        for rank, found in enumerate(ranks):
            told = found[name]["told"]
            assert told.startswith(texts.get(rank, texts[None])), (name, rank, told)
            assert "OutOfRange" not in texts[None] or "Target 99 is out of bounds" in told
            assert SKIPPED in told or NOTHING in told or rank in texts or "BindError" in texts[None], (
                name,
                rank,
                told,
            )
            assert found[name]["same"], (name, rank)
    for name in (*TOLD, *STEPS_OF_ALL):  # afterwards all go on, with the same parameters
        assert {found[name]["again"] for found in ranks} == {"nothing"}, name
        assert len({found[name]["digest"] for found in ranks}) == 1, name
    assert [found["interrupt"]["told"] for found in ranks] == [
        "nothing",
        "InterruptedError: after the step",
        "nothing",
    ]
    assert ranks[1]["interrupt of a replay"]["told"] == "InterruptedError: after the steps"
    assert ranks[0]["refused loss"].startswith("TraceError")
    for found in ranks[1:]:
        assert "RankError: step: rank 0 cannot go on: TraceError" in found["refused loss"]


def check_survivors(ended: list[Ended]) -> list[Any]:
    """The others end in time, with one error and the bits of the same whole steps."""
    assert ended[1].status == -9
    found = [ended[rank].found for rank in (0, 2)]
    for each in found:
        assert each is not None, [rank.errors for rank in ended]
        assert each["told"].startswith("RankError: step: rank "), each
        assert "has lost another rank" in each["told"], each
        assert each["afterwards"].startswith("RankError: step: rank "), each
        assert each["waited"] < LIMIT_S, each
        assert each["whole"], found
    assert found[0]["steps"] == found[1]["steps"], found
    assert found[0]["digest"] == found[1]["digest"], found
    return found


@pytest.mark.parametrize("number", range(MANY))
@pytest.mark.parametrize("zero", STAGES)
def test_a_rank_that_is_killed_ends_the_others_after_whole_steps(
    tmp_path: Path, zero: int, number: int
) -> None:
    for found in check_survivors(run_ranks_of(f"killed_{zero}", RANKS, tmp_path)):
        assert len(found["steps"]) == 1, found


@pytest.mark.parametrize(
    ("zero", "number"), [(zero, number) for zero in STAGES for number in range(EXCHANGES[zero])]
)
def test_a_rank_that_is_killed_before_an_exchange_ends_the_others_after_whole_steps(
    tmp_path: Path, zero: int, number: int
) -> None:
    check_survivors(run_ranks_of(f"killed_at_{zero}_{number}", RANKS, tmp_path))


@pytest.mark.parametrize("zero", STAGES)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_rank_that_is_killed_around_the_vote_ends_the_others_after_whole_steps(
    tmp_path: Path, moment: str, zero: int
) -> None:
    """What the status goes with counts only once both have come, also where the host exchanges them one after the other."""
    for found in check_survivors(run_ranks_of(f"killed_{moment}_{zero}", RANKS, tmp_path)):
        assert found["steps"] == [MOMENTS[moment]], found
        assert (found["sizes"][-1] == STATUS_BYTES) == (moment == "between"), found


@pytest.mark.parametrize("zero", STAGES)
def test_these_are_all_exchanges(tmp_path: Path, zero: int) -> None:
    ranks = found_by(f"killed_at_{zero}_{NEVER}", RANKS, tmp_path)
    assert [found["exchanges"] for found in ranks] == [0, EXCHANGES[zero], 0]
