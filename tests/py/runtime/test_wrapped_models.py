"""Models in DistributedDataParallel with each of its flags, and the wrappers that a step of several processes refuses."""

from __future__ import annotations

from pathlib import Path

from test_data_parallel import found_by


def test_flags_of_distributed_data_parallel_change_nothing(tmp_path: Path) -> None:
    ranks = found_by("wrapped_with_flags", 2, tmp_path)
    for rank in ranks:
        for name, found in rank.items():
            assert found["far"] < 2e-6, name
            assert found["digest"] == ranks[0][name]["digest"], name
            assert found["digest"] == ranks[0]["none"]["digest"] or name == "unused", name


def test_what_a_step_does_not_follow_is_refused_by_name(tmp_path: Path) -> None:
    wrapper = "BindError: the DistributedDataParallel has the communication hook "
    sharded = "BindError: the model is sharded by fully_shard, whose collectives a step does not follow; pass the model"
    for rank, found in enumerate(found_by("refused_wrappers", 2, tmp_path)):
        assert found["hook"].startswith(wrapper), found
        assert found["built-in hook"].startswith(f"{wrapper}BuiltinCommHookType.FP16_COMPRESS, which"), found
        for name in ("sharded", "sharded without mesh", "sharded in part"):
            assert found[name].startswith(sharded), found
            assert "zero=2" in found[name]
        for name in ("divided", "divided without mesh", "divided in a body"):
            assert (
                "the optimizer is a ZeroRedundancyOptimizer, which updates the parameters of one"
                in found[name]
            )
            assert "optimizer=AdamW(…) of all parameters, mesh= and zero=1" in found[name]
        assert "the optimizer is a Derived, which updates" in found["divided by a subclass"]
        assert "optimizer=SGD(…) of all parameters, mesh= and zero=1" in found["divided by a subclass"]
        assert found["no_sync"] == (
            "StateError: step: inside of no_sync(), which a step does not follow; use accumulate="
        )
        assert found["join"].startswith(
            "StateError: step: the DistributedDataParallel has been in join(), which"
        )
        assert found["afterwards"] == "nothing"
        late = "step: the DistributedDataParallel has a communication hook now"
        assert late in found["late hook"], found
        assert found["late hook"].startswith("RankError: step: rank 0" if rank else f"StateError: {late}")
