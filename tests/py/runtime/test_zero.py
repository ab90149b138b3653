"""Steps of several processes that divide the optimizer's state, and gradients: the bits of one that does not, one transaction."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from test_data_parallel import found_by
from torch import nn

from aicf_mlir import BindError, compile_train_step


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_divided_step_has_the_bits_of_a_whole_one(tmp_path: Path, count: int) -> None:
    """Five ranks are more than the model has parameters."""
    ranks = found_by("divided", count, tmp_path)
    for name, first in ranks[0].items():
        cases = [rank[name] for rank in ranks]
        assert len({bits for case in cases for bits in case["bits"]}) == 1, name
        assert all(seen == first["numbers"][0] for case in cases for seen in case["numbers"]), name
        for zero in ("zero=1", "zero=2"):
            parts = [case[zero] for case in cases]
            assert all(part["same state"] and part["same gradients"] for part in parts), (name, zero)
            assert sorted(number for part in parts for number in part["owned"]) == [0, 1, 2, 3], (name, zero)
            assert sum(part["bytes"] for part in parts) == first["whole"], (name, zero)
            assert [part["bytes"] for part in parts] == [part["held"] for part in parts], (name, zero)
    for rank in ranks:
        assert rank["gradients"]["zero=1"]["gradients"] == [0, 1, 2, 3]
        assert rank["gradients"]["zero=2"]["gradients"] == rank["gradients"]["zero=2"]["owned"]
    kept = [rank["gradients"]["zero=2"]["bytes of gradients"] for rank in ranks]
    assert sum(kept) == ranks[0]["gradients"]["all gradients"] > max(kept)
    scales = ranks[0]["scaled"]["numbers"][0]
    assert 0 < scales[-1][1] < 6, scales  # some steps were skipped


def test_a_divided_step_has_the_bits_of_a_whole_one_for_unusual_gradients(tmp_path: Path) -> None:
    ranks = found_by("divided_models", 2, tmp_path)
    for name, bits in ranks[0].items():
        assert len({*bits, *ranks[1][name]}) == 1, (name, bits)


@pytest.mark.parametrize("zero", [1, 2])
def test_a_divided_step_has_them_with_other_sizes_and_recompiled(tmp_path: Path, zero: int) -> None:
    for found in found_by(f"divided_again_{zero}", 2, tmp_path):
        assert len(set(found["bits"])) == 1
        assert "('1', GELU), ('2', Linear)), now (('0', Linear), ('1', Sigmoid)" in found["told"]


@pytest.mark.parametrize("zero", [1, 2])
def test_one_lock_holds_for_the_plans_of_all_ranks(tmp_path: Path, zero: int) -> None:
    ranks = found_by(f"divided_and_locked_{zero}", 2, tmp_path)
    for found in ranks:
        assert found["far"] < 1e-6
        assert found["digest"] == ranks[0]["digest"]
        assert "LockError" in found["one"]
        assert "has no kernel for" in found["one"]


@pytest.mark.parametrize("zero", [1, 2])
def test_a_checkpoint_of_a_divided_step_is_whole(tmp_path: Path, zero: int) -> None:
    ranks = found_by(f"divided_files_{zero}", 3, tmp_path)
    wanted = ranks[0]["wanted"]
    for rank, found in enumerate(ranks):
        assert [found[f"zero={stage}"] for stage in range(3)] == [wanted] * 3, rank
        assert found["wanted"] == found["from whole"] == wanted
        assert found["one"] == found["saved"] == ranks[0]["saved"]
        assert found["same file"]
        assert found.get("fewer", True)
        assert "the ranks differ: rank 0 calls save, rank 1 calls train_step" in found["alone"]
        assert found["other"].startswith(("CheckpointError", "RankError: step: rank")), rank


@pytest.mark.parametrize("zero", [1, 2])
def test_a_fault_changes_neither_parameters_nor_state(tmp_path: Path, zero: int) -> None:
    ranks = found_by(f"divided_faults_{zero}", 3, tmp_path)
    for found in ranks:
        for name in ("nan", "snapshot", "rate", "again"):
            assert found[name]["same"], name
        assert found["nan"]["told"].startswith("NonFiniteError: step: rank ")
        assert found["rate"]["told"].startswith("RankError: step: the ranks differ: rank 0 has plan ")
        assert found["clip"].startswith("RankError: step: the ranks differ")
        assert found["option"].startswith("RankError: step: the ranks differ")
        assert found["resumed"]
        assert found["owned"]
        assert found["whole"]
        assert f"state of parameters that another rank updates with zero={zero}" in found["shared"]
        assert f"state of parameters that another rank updates with zero={zero}" in found["loaded"]
        assert (
            "the optimizer is traced, and its step may mix parameters: it cannot be divided"
            in found["traced"]
        )
        assert found["digest"] == ranks[0]["digest"]


def test_a_division_needs_processes_and_a_number() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BindError, match="zero: the optimizer's state is divided among processes"):
        compile_train_step(model, optimizer, B=4, D=2, zero=1)
    for wrong in (3, -1, True, "1"):
        with pytest.raises(BindError, match="zero: expected 0, 1 to divide the optimizer's state, or 2 to"):
            compile_train_step(model, optimizer, B=4, D=2, zero=wrong)  # pyright: ignore[reportArgumentType]
