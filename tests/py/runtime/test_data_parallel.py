"""Steps of several processes: torch's DistributedDataParallel, the bits of micro-batches, and one transaction for all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import run_ranks_of
from torch import nn

from aicf_mlir import BindError, compile_train_step

SKIPPED = "The step was skipped whole"
NOTHING = "No rank has changed anything"


def found_by(program: str, count: int, folder: Path) -> list[Any]:
    """What each rank has found; all end well."""
    ended = run_ranks_of(program, count, folder)
    for each in ended:
        assert each.status == 0, each.errors
    return [each.found for each in ended]


@pytest.mark.usual
def test_two_ranks_train_as_with_distributed_data_parallel(tmp_path: Path) -> None:
    ranks = found_by("training", 2, tmp_path)
    for name in ("mesh", "wrapped"):
        assert ranks[0][name]["digest"] == ranks[1][name]["digest"]
        for rank in ranks:
            assert rank[name]["losses"] < 2e-6
            assert rank[name]["parameters"] < 2e-6
            assert rank[name]["buffers"] < 2e-6


@pytest.mark.parametrize("count", [2, 3])
def test_synchronized_batch_norm_is_batch_norm_of_the_whole_batch(tmp_path: Path, count: int) -> None:
    """The statistics of two layers are 4 sums, their gradients 4 more; one more takes the gradients, with the vote."""
    ranks = found_by("synchronized", count, tmp_path)
    for rank in ranks:
        for name, found in rank.items():
            assert found["losses"] < 1e-14, name
            assert found["state"] < 1e-13, name
            assert found["digest"] == ranks[0][name]["digest"], name
            assert found["collectives"] == 8 + 1, name


def test_synchronized_batch_norm_of_other_processes_than_the_step_has_is_refused(tmp_path: Path) -> None:
    for rank, found in enumerate(found_by("normalized_elsewhere", 3, tmp_path)):
        assert (
            f"nn.SyncBatchNorm normalizes over the processes [0, 1, 2], and the step has [{rank}];"
            in (found["no mesh"])
        )
        assert found["evaluation without mesh"] == found["evaluation"] == "nothing"
        assert found["evaluation collectives"] == 1
        if rank < 2:
            assert "over the processes [0, 1, 2], and the step has [0, 1];" in found["pair of three"]
            assert found["pair"] == "nothing"
            assert found["pair collectives"] == 8 + 1


def test_another_group_of_a_synchronized_batch_norm_is_seen(tmp_path: Path) -> None:
    ranks = found_by("normalized_over_others", 2, tmp_path)
    for rank, found in enumerate(ranks):
        assert "model.of_first.process_group was None, now a ProcessGroup" in found["told"]
        assert f"over the processes [{rank}], and the step has [0, 1]" in found["told"]
        assert found["same"]
    assert ranks[0]["digest"] == ranks[1]["digest"]


def test_three_ranks_have_the_bits_of_three_micro_batches(tmp_path: Path) -> None:
    ranks = found_by("as_micro_batches", 3, tmp_path)
    for name, (bits, alone) in ranks[0].items():
        assert bits == alone, name
        assert [rank[name][0] for rank in ranks] == [bits] * 3, name


def test_each_rank_has_a_certificate(tmp_path: Path) -> None:
    """Of what is wrong on one rank all of them hear, and go on: nothing of a certificate's steps stays."""
    ranks = found_by("certified", 2, tmp_path)
    for name in ("mesh", "checks", "zero=1", "zero=2"):
        for rank in ranks:
            text = rank[name]["text"]
            assert text.startswith("step on cpu: equal (") and "-     torch" in text, text
            assert "not compared: the step has several ranks; compile one without mesh=" in text
    for rank in ranks:  # the second step of both has gradients of what is wrong after the first
        assert "FAILS replay" in rank["replay"]["text"] and "on rank" not in rank["replay"]["text"]
    first, second = (rank["step"]["text"] for rank in ranks)
    assert "FAILS reference" in second and "on rank 1: " not in second, second
    assert (
        "FAILS reference" in first and "      on rank 1: step 1 is not what the model says: param" in first
    ), first
    first, second = (rank.pop("fails") for rank in ranks)
    assert second["text"] == "ValueError: no memory" and first["text"].startswith("RankError: "), first
    assert first["same"] and second["same"]
    for rank in ranks:
        for name, found in rank.items():
            assert found["same"] and found["told"] == "nothing", (name, found)
            assert found["digest"] == ranks[0][name]["digest"], name


def test_what_is_not_finite_on_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    """A mean is no rank's own: the first one is named."""
    ranks = found_by("not_finite", 2, tmp_path)
    for rank in ranks:
        told, same = rank["zeros"]
        assert told.startswith("NonFiniteError: step: rank 0: the gradient of 'weight' is nan at [0, 0]. "), (
            told
        )
        assert same
        told, same = rank["nan"]
        assert told.startswith("NonFiniteError: step: rank 1: the loss is nan. "), told
        assert same
        assert rank["ones"] == ["nothing", False]
        assert rank["digest"] == ranks[0]["digest"]


def test_a_size_that_one_rank_has_alone_ends_nothing(tmp_path: Path) -> None:
    ranks = found_by("of_other_sizes", 2, tmp_path)
    for rank in ranks:
        assert rank["told"][0].startswith("RankError: step: the ranks differ")
        assert rank["told"][1:] == ["nothing"] * 4
        assert rank["digest"] == ranks[0]["digest"]


def test_a_step_is_not_taken_for_another_with_the_same_plan(tmp_path: Path) -> None:
    ranks = found_by("two_alike", 2, tmp_path)
    for rank in ranks:
        assert rank["told"][:2] == ["nothing"] * 2
        assert rank["told"][2].startswith("RankError: step: the ranks differ: rank 0 is at step ")
        assert rank["digests"] == [ranks[0]["digests"][0]] * 2


def test_a_profile_that_one_rank_is_interrupted_in_ends_on_all_alike(tmp_path: Path) -> None:
    ranks = found_by("profiled", 2, tmp_path)
    assert [rank["told"] for rank in ranks] == ["", "interrupted"]
    assert all(rank["same"] for rank in ranks)
    assert ranks[0]["digest"] == ranks[1]["digest"]


def test_beside_the_model_ranks_have_alike_what_is_trained(tmp_path: Path) -> None:
    """As with torch, where a loss that is not wrapped has its own tensors on each rank."""
    ranks = found_by("beside_the_model", 2, tmp_path)
    assert ranks[0]["bits"] == ranks[1]["bits"]
    assert ranks[0]["code"] != ranks[1]["code"]
    assert all(rank["far"] < 2e-6 for rank in ranks)


def test_all_ranks_go_on_from_the_file_of_one(tmp_path: Path) -> None:
    ranks = found_by("resumed", 2, tmp_path)
    assert ranks[0]["first"] != ranks[1]["first"]  # one batch and one seed, and other numbers
    assert all(rank["equal"] for rank in ranks)
    assert ranks[0]["missing"].startswith("RankError: step: rank 1 cannot go on: CheckpointError")
    assert ranks[1]["missing"].startswith("CheckpointError")


def test_a_mesh_needs_a_process_group() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(BindError, match="has no process group yet"):
        compile_train_step(model, optimizer, B=4, D=2, mesh="dp")  # pyright: ignore[reportArgumentType]
