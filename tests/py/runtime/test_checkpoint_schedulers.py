"""A checkpoint with the state of LR schedulers goes into the same ones, exactly; into others never, and then nothing changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from scheduled_bodies import SCHEDULERS, Halved, Scheduled
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir.errors import CheckpointError
from aicf_mlir.runtime import checkpoint_file

made: dict[str, Scheduled] = {}
"""One step for each scheduler, compiled once: a refused load leaves no trace in it."""


def step_of(name: str) -> Scheduled:
    if name not in made:
        made[name] = Scheduled.of(SCHEDULERS[name])
        made[name].train(2)
    return made[name]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def file_of(name: str, files: Path) -> Path:
    path = files / name
    if not path.exists():
        step_of(name).step.save(path)
    return path


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_same_scheduler_goes_on(name: str, tmp_path: Path) -> None:
    one, other = Scheduled.of(SCHEDULERS[name]), Scheduled.of(SCHEDULERS[name], seed=9)
    one.train(3)
    one.step.save(tmp_path / "a")
    other.train(1)
    other.step.load(tmp_path / "a")
    assert other.everything() == one.everything()
    for _ in range(4):  # over milestones, restarts and ends of warm-ups
        one.train()
        other.train()
        assert other.everything() == one.everything()


@pytest.mark.parametrize("theirs", SCHEDULERS)
def test_another_scheduler_is_refused(theirs: str, files: Path, request: pytest.FixtureRequest) -> None:
    path = file_of(theirs, files)
    same = {theirs, *(("lambda", "lambda_object") if theirs.startswith("lambda") else ())}
    usual = {"step", "users", "chain"}
    for ours in (SCHEDULERS.keys() if request.config.getoption("--campaign") else usual) - same:
        setup = step_of(ours)
        before = setup.everything()
        with pytest.raises(
            CheckpointError, match=r"has the state of .*, this step steps .*; make the LR sched"
        ):
            setup.step.load(path)
        assert setup.everything() == before, ours
    step_of("step").train()


def test_a_checkpoint_without_schedulers_is_refused(files: Path, tmp_path: Path) -> None:
    tensors, description = checkpoint_file.read_checkpoint(file_of("step", files))
    setup = step_of("step")
    for change, message in (
        ({"schedulers": []}, "has the state of 0 LR schedulers, this step steps 1"),
        ({"scheduler_classes": []}, "has the state of LR schedulers whose class it does not say"),
    ):
        checkpoint_file.write_checkpoint(tmp_path / "a", tensors, {**description, **change})
        before = setup.everything()
        with pytest.raises(CheckpointError, match=message):
            setup.step.load(tmp_path / "a")
        assert setup.everything() == before


NAN = {"float": "nan"}


@pytest.mark.parametrize(
    "name, path, value, message",
    [
        ("step", ["step_size"], 0, "its next step would fail: ZeroDivisionError"),
        ("step", ["step_size"], None, "its next step would fail: TypeError"),
        ("step", ["step_size"], "x", "step_size is 'x', expected a number"),
        ("step", ["gamma"], NAN, "gamma is nan, expected a finite number"),
        ("step", ["last_epoch"], True, "last_epoch is True, expected a number"),
        ("step", ["base_lrs"], [], "base_lrs has 0 members, expected 1"),
        ("step", ["base_lrs"], 1.0, "base_lrs is 1.0, expected a list"),
        ("step", ["more"], 1, r"it has _get_lr_called_within_step, .*more"),
        ("multi_step", ["milestones"], {"pairs": [[2, -1]]}, "expected how often which epoch is met"),
        ("one_cycle", ["_anneal_func_type"], "x", "its next step would fail"),
        ("one_cycle", ["_schedule_phases"], [], "_schedule_phases has 0 members"),
        ("lambda", ["lr_lambdas"], [], "lr_lambdas has 0 members, expected 1"),
        ("lambda", ["lr_lambdas"], [{"items": {}}], r"lr_lambdas\[0\] is {}, expected nothing"),
        ("lambda_object", ["lr_lambdas"], [1], r"lr_lambdas\[0\] is 1, expected a dictionary"),
        ("sequence", ["_schedulers"], [], "_schedulers: expected the states of 2"),
        ("sequence", ["_schedulers"], [1, 2], "it is 1, expected a dictionary"),
        ("sequence", ["_schedulers", 1, "milestones"], 3, "milestones is 3"),
        ("chain", ["_schedulers", 1, "gamma"], NAN, "gamma is nan"),
        ("users", ["every"], "x", "every is 'x', expected a number"),
    ],
)
def test_a_state_that_is_none_is_refused(
    name: str, path: list[Any], value: Any, message: str, files: Path, tmp_path: Path
) -> None:
    tensors, description = checkpoint_file.read_checkpoint(file_of(name, files))
    at: Any = description["schedulers"][0]
    for key in path[:-1]:
        at = at["items"][key] if isinstance(key, str) else at[key]
    at["items"][path[-1]] = value
    checkpoint_file.write_checkpoint(tmp_path / "hostile", tensors, description)
    setup = step_of(name)
    before = setup.everything()
    with pytest.raises(CheckpointError, match=message):
        setup.step.load(tmp_path / "hostile")
    assert setup.everything() == before


def test_a_rate_out_of_range_is_seen_one_step_ahead(files: Path, tmp_path: Path) -> None:
    tensors, description = checkpoint_file.read_checkpoint(file_of("step", files))
    description["settings"][0]["items"]["lr"] = 1e10
    description["schedulers"][0]["items"] |= {"gamma": 1e308, "step_size": 1}
    checkpoint_file.write_checkpoint(tmp_path / "a", tensors, description)
    setup = step_of("step")
    before = setup.everything()
    with pytest.raises(CheckpointError, match="its next step would set the rate inf"):
        setup.step.load(tmp_path / "a")
    assert setup.everything() == before


def test_what_schedulers_leave_in_a_group_comes_back(tmp_path: Path) -> None:
    """OneCycleLR keeps its largest rate in the param groups: torch saves it with the optimizer."""
    one = Scheduled.of(SCHEDULERS["one_cycle"])
    one.train(2)
    one.step.save(tmp_path / "a")
    other = Scheduled.of(lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=9), seed=5)
    other.step.load(tmp_path / "a")
    for _ in range(3):
        assert other.everything() == one.everything()
        one.train()
        other.train()


def test_a_lacking_key_is_refused(files: Path, tmp_path: Path) -> None:
    for name in ("step", "users", "sequence"):
        tensors, description = checkpoint_file.read_checkpoint(file_of(name, files))
        del description["schedulers"][0]["items"]["last_epoch"]
        checkpoint_file.write_checkpoint(tmp_path / "a", tensors, description)
        setup = step_of(name)
        before = setup.everything()
        with pytest.raises(CheckpointError, match=r"LR scheduler 0, .*, does not fit: it has "):
            setup.step.load(tmp_path / "a")
        assert setup.everything() == before


def test_a_checkpoint_of_the_end_of_a_schedule_is_loaded(tmp_path: Path) -> None:
    """torch refuses the step after the last; the state before it is one to be loaded all the same."""
    one = Scheduled.of(lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=3))
    one.train(2)
    one.step.save(tmp_path / "a")
    other = Scheduled.of(lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=3), seed=3)
    other.step.load(tmp_path / "a")
    assert other.everything() == one.everything()


class Failing(Halved):
    """Writes half of its state, in place too, and raises."""

    fails = False

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.fails:
            self.every = 77
            self.halves.append(5)
            self.optimizer.param_groups[0]["lr"] = 3.0
            raise RuntimeError("no such state")
        super().load_state_dict(state_dict)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_an_error_half_way_undoes_all(
    error: type[BaseException] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two(optimizer: torch.optim.Optimizer) -> LRScheduler:
        return lr_scheduler.ChainedScheduler(
            [lr_scheduler.StepLR(optimizer, 2), Failing(optimizer, 3)], optimizer
        )

    setup = Scheduled.of(two)
    setup.train(2)
    setup.step.save(tmp_path / "a")
    setup.train(2)
    before = setup.everything()
    if error is None:
        monkeypatch.setattr(Failing, "fails", True)
        with pytest.raises(
            CheckpointError, match=r"cannot be put back \(RuntimeError: no such state\); the step is"
        ):
            setup.step.load(tmp_path / "a")
    else:

        def interrupt(snapshot: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(setup.step, "_restore", interrupt)
        with pytest.raises(KeyboardInterrupt):
            setup.step.load(tmp_path / "a")
    assert setup.everything() == before
    setup.train()


def test_the_numbers_of_the_file_win_as_in_torch(tmp_path: Path) -> None:
    one = Scheduled.of(lambda o: lr_scheduler.StepLR(o, 2, 0.5))
    one.train(2)
    one.step.save(tmp_path / "a")
    other = Scheduled.of(lambda o: lr_scheduler.StepLR(o, 9, 0.1), seed=4)
    other.step.load(tmp_path / "a")
    assert other.everything() == one.everything()
