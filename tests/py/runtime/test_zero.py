"""Steps of several processes whose optimizer state is divided: the bits of a step that is not, and one transaction for all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from ranks import run_ranks_of
from test_data_parallel import found_by
from torch import nn

from aicf_mlir import BindError, compile_train_step


@pytest.mark.parametrize("count", [2, 3])
def test_a_divided_optimizer_has_the_bits_of_a_whole_one(tmp_path: Path, count: int) -> None:
    ranks = found_by("divided", count, tmp_path)
    for name in ranks[0]:
        cases = [rank[name] for rank in ranks]
        assert len({bits for case in cases for bits in case["bits"]}) == 1, name
        assert all(case["same state"] for case in cases), name
        assert sorted(number for case in cases for number in case["owned"]) == [0, 1, 2, 3], name
        assert sum(case["bytes"][1] for case in cases) == cases[0]["bytes"][0], name
        assert [case["bytes"][1] for case in cases] == [case["held"] for case in cases], name


def test_a_divided_optimizer_has_them_with_other_sizes_and_recompiled(tmp_path: Path) -> None:
    for found in found_by("divided_again", 2, tmp_path):
        assert len(set(found["bits"])) == 1
        assert "('1', GELU), ('2', Linear)), now (('0', Linear), ('1', Sigmoid)" in found["told"]


def test_one_lock_holds_for_the_plans_of_all_ranks(tmp_path: Path) -> None:
    ranks = found_by("divided_and_locked", 2, tmp_path)
    for found in ranks:
        assert found["far"] < 1e-6
        assert found["digest"] == ranks[0]["digest"]
        assert "LockError" in found["one"]
        assert "has no kernel for" in found["one"]


def test_a_checkpoint_of_a_divided_optimizer_is_whole(tmp_path: Path) -> None:
    ranks = found_by("divided_files", 3, tmp_path)
    wanted = ranks[0]["wanted"]
    for rank, found in enumerate(ranks):
        assert [found[name] for name in ("wanted", "whole", "divided", "from whole")] == [wanted] * 4
        assert found["one"] == found["saved"] == ranks[0]["saved"]
        assert found["same file"]
        assert found.get("fewer", True)
        assert "the ranks differ: rank 0 calls save, rank 1 calls train_step" in found["alone"]
        assert found["other"].startswith(("CheckpointError", "RankError: step: rank")), rank


def test_a_fault_changes_neither_parameters_nor_state(tmp_path: Path) -> None:
    ranks = found_by("divided_faults", 3, tmp_path)
    for found in ranks:
        for name in ("nan", "snapshot", "rate", "again"):
            assert found[name]["same"], name
        assert found["nan"]["told"].startswith("NonFiniteError: step: rank ")
        assert found["rate"]["told"].startswith("RankError: step: the ranks differ: rank 0 has plan ")
        assert found["clip"].startswith("RankError: step: the ranks differ")
        assert found["option"].startswith("RankError: step: the ranks differ")
        assert "state of parameters that another rank updates with zero=1" in found["state"]
        assert "state of parameters that another rank updates with zero=1" in found["loaded"]
        assert (
            "the optimizer is traced, and its step may mix parameters: it cannot be divided"
            in found["traced"]
        )
        assert found["digest"] == ranks[0]["digest"]


def test_a_rank_that_is_killed_ends_the_others_after_whole_steps(tmp_path: Path) -> None:
    ended = run_ranks_of("killed_divided", 3, tmp_path)
    first, last = ended[0].found, ended[2].found
    assert ended[1].status == -9
    for found in (first, last):
        assert "has lost another rank" in found["told"]
        assert found["counted"] == [float(found["steps"])]
    assert (first["steps"], first["digest"]) == (last["steps"], last["digest"])


def test_a_division_needs_processes_and_a_number() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BindError, match="zero: the optimizer's state is divided among processes"):
        compile_train_step(model, optimizer, B=4, D=2, zero=1)
    with pytest.raises(BindError, match="zero: expected 0, or 1 to divide the optimizer's state, got 2"):
        compile_train_step(model, optimizer, B=4, D=2, zero=2)
