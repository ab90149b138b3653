"""A description of a checkpoint that anybody may have written, under a right digest: it is taken whole and sane, or refused.

`--mutants N` tries N of each step; a campaign 1,000, which is 3,000 in all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import CONTRACT_OPTIMIZERS, Batch, compiled, regression
from mutated_descriptions import mutated
from scheduled_bodies import SCHEDULERS, Scheduled
from torch import nn

from aicf_mlir.errors import CheckpointError
from aicf_mlir.runtime import checkpoint_file


class Weighted(nn.Module):
    """A number of Python that the step takes from the device."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.alpha = nn.Linear(8, 8), 0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.alpha


class Plain:
    """A step with numbers of all kinds: settings, one of them a tensor, a host scalar, a limit of the step itself."""

    def __init__(self) -> None:
        self.model = Weighted()
        optimizer = CONTRACT_OPTIMIZERS[3].but(lr=torch.tensor(1e-2))
        self.setup = compiled(optimizer, model=self.model, meta=["model.alpha"], clip_grad_norm=1.0)
        torch.optim.lr_scheduler.StepLR(self.setup.optimizer, 3)
        self.step, self.optimizer = self.setup.step, self.setup.optimizer
        self.batch: Batch = regression(5)

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step.train_step(self.batch)

    def everything(self) -> str:
        arenas = self.step._store.arenas  # pyright: ignore[reportPrivateUsage]
        memory = {role: arena.read(0, arena.nbytes) for role, arena in arenas.items()}
        groups = [sorted((k, v) for k, v in g.items() if k != "params") for g in self.optimizer.param_groups]
        return repr(
            (
                memory,
                groups,
                self.model.alpha,
                dict(self.step.meta),
                sorted(self.optimizer.state_dict()["state"].items()),
            )
        )


STEPS: dict[str, Callable[[], Any]] = {
    "plain": Plain,
    "sequence": lambda: Scheduled.of(SCHEDULERS["sequence"]),
    "one_cycle": lambda: Scheduled.of(SCHEDULERS["one_cycle"]),
}


def sane(setup: Any) -> None:
    """What is taken is what a step can have: rates are numbers, and each value is an object of its own."""
    for group in setup.optimizer.param_groups:
        assert math.isfinite(float(group["lr"])) and float(group["initial_lr"]) >= 0, group
        tensors = [value for value in group.values() if isinstance(value, torch.Tensor)]
        assert len({id(value) for value in tensors}) == len(tensors)


@pytest.mark.parametrize("kind", STEPS)
def test_a_mutated_description(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    setup = STEPS[kind]()
    setup.train(2)
    setup.step.save(tmp_path / "good")
    setup.train(1)
    tensors, description = checkpoint_file.read_checkpoint(tmp_path / "good")
    first = int(request.config.getoption("--seed"))
    count = 1000 if request.config.getoption("--campaign") else int(request.config.getoption("--mutants"))
    keys, before, taken = set(setup.optimizer.param_groups[0]), setup.everything(), 0
    for seed in range(first, first + count):
        changed = mutated(description, seed)
        try:
            checkpoint_file.write_checkpoint(tmp_path / "mutant", tensors, changed)
        except (ValueError, RecursionError, UnicodeEncodeError):
            continue  # no JSON
        try:
            setup.step.load(tmp_path / "mutant")
        except CheckpointError:
            if setup.everything() != before:
                raise AssertionError(
                    f"mutant {seed} of {kind} was refused and has changed the step: {changed}"
                ) from None
            continue
        except Exception as error:
            raise AssertionError(f"mutant {seed} of {kind}: {changed}") from error
        taken += 1
        sane(setup)
        for group in setup.optimizer.param_groups:
            for key in group.keys() - keys:  # further numbers, which torch's state_dict takes too
                del group[key]
        setup.train(1)
        setup.step.load(tmp_path / "good")
        setup.train(1)
        assert setup.everything() == before, f"mutant {seed} of {kind}"
    setup.train(1)
    assert taken < count / 2, "most changes matter"


@pytest.mark.parametrize("kind", STEPS)
def test_a_key_that_stands_twice(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has it, and whoever reads it may take either; so has a number that is too large for a float."""
    setup = STEPS[kind]()
    setup.train(2)
    setup.step.save(tmp_path / "good")
    before = setup.everything()
    tensors, description = checkpoint_file.read_checkpoint(tmp_path / "good")
    dumps = json.dumps
    replace = [
        ('"published"', '"published": [], "published"'),
        ('"lr": ', '"lr": 1, "lr": '),
        ('"eps": ', '"eps": 1e999, "x": '),
    ]
    for old, new in replace:
        monkeypatch.setattr(
            json, "dumps", lambda *a, _old=old, _new=new, **k: dumps(*a, **k).replace(_old, _new)
        )
        checkpoint_file.write_checkpoint(tmp_path / "twice", tensors, description)
        monkeypatch.undo()
        with pytest.raises(CheckpointError, match=r"stands there twice|is no finite number"):
            setup.step.load(tmp_path / "twice")
        assert setup.everything() == before
