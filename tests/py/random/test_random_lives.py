"""Random sequences of what a user may call and change, mirrored in torch eager: after each, the two agree.

Each life draws its optimizer and the options of its two steps. `--lives N` sets how many sequences run, `--seed S` the first.
All is float64, so that what differs is no rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lives import ROWS, Both, Loss, Training, first_loss
from models import to_device
from torch import nn
from written_optimizers import SignSGD

LENGTH = 30


class Life(Training):
    """What may happen in one."""

    def __init__(self, seed: int, device: str, folder: Path):
        super().__init__(seed, device, folder)
        self.saved: list[tuple[Both, Any, Any]] = []
        self.files: list[tuple[Both, Path, Any]] = []

    def any(self) -> Both:
        """One of the steps."""
        return self.random.choice(self.both)

    def train_step(self) -> None:
        both = self.any()
        self.run(both, self.parts(both))

    def replay(self) -> None:
        both = self.any()
        new = self.parts(both) if self.random.random() < 0.5 else None
        self.repeat(both, self.random.randrange(1, 4), new)

    def warmup(self) -> None:
        both = self.any()
        both.parts = self.parts(both)
        both.step.warmup(both.given(both.parts), self.random.randrange(1, 3))

    def profile(self) -> None:
        both = self.any()
        parts = both.parts or self.parts(both, ROWS)
        both.step.profile(1, both.given(parts))
        if both.parts is not None:
            both.step.profile(self.random.randrange(1, 3))

    def overflow(self) -> None:
        both = self.any()
        if both.options.loss_scale is None:
            return
        parts = self.parts(both)
        self.random.choice(parts)["t"][1, 2] = math.inf
        self.run(both, parts)

    def evaluation(self) -> None:
        batch = self.batch()
        with torch.no_grad():
            expected = Loss(first_loss)(self.mirror, batch)
        got = self.evaluate.eval_step(to_device(batch, self.device))
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-9, atol=1e-12)

    def certificate(self) -> None:
        both = self.any()
        both.step.reset()
        both.parts = self.parts(both)
        both.step.warmup(both.given(both.parts))
        certificate = both.step.capture(both.given(both.parts), verify="bitwise")
        assert certificate.equal, certificate

    def metrics(self) -> None:
        both = self.any()
        if both.mirror.count and both.options.metrics:
            both.step.metrics(reset=True)
            both.mirror.reset_metrics()

    def reset(self) -> None:
        self.any().step.reset()

    def recompile(self) -> None:
        both = self.any()
        both.step.recompile()
        both.parts = None
        self.saved = [s for s in self.saved if s[0] is not both]

    def theirs(self, both: Both) -> Any:
        """All that a snapshot of one of the steps has, of the mirror."""
        return copy.deepcopy((self.mirror.state_dict(), self.other.state_dict(), both.mirror.state()))

    def put_back(self, both: Both, theirs: Any) -> None:
        """Into the mirror."""
        model, optimizer, own = copy.deepcopy(theirs)
        self.mirror.load_state_dict(model)
        self.other.load_state_dict(optimizer)
        both.mirror.load(own)

    def snapshot(self) -> None:
        both = self.any()
        self.saved.append((both, both.step.snapshot(), self.theirs(both)))

    def restore(self) -> None:
        if self.saved:
            both, snapshot, theirs = self.random.choice(self.saved)
            both.step.restore(snapshot)
            self.put_back(both, theirs)

    def save(self) -> None:
        both, path = self.any(), self.folder / f"{len(self.files)}.aicf"
        both.step.save(path)
        self.files.append((both, path, self.theirs(both)))

    def load(self) -> None:
        if self.files:
            both, path, theirs = self.random.choice(self.files)
            both.step.load(path)
            self.put_back(both, theirs)

    def learning_rate(self) -> None:
        value = self.random.choice([0.01, 0.03, 0.1])
        if self.random.random() < 0.5:
            self.any().step.meta["lr"] = value
        else:
            self.optimizer.param_groups[0]["lr"] = value
        self.other.param_groups[0]["lr"] = value

    def limits(self) -> None:
        both, value = self.any(), self.random.choice([0.003, 0.05, 10.0])
        if both.is_body:
            return  # its limits are numbers in its text
        norm = both.options.clip_grad_norm
        if norm is not None:
            both.step.meta["clip_grad_norm"] = value
            both.mirror.options = replace(both.options, clip_grad_norm=replace(norm, max_norm=value))
        if both.options.clip_grad_value is not None:
            both.step.meta["clip_grad_value"] = value
            both.mirror.options = replace(both.options, clip_grad_value=value)

    def change(self, do: Callable[[nn.Module, torch.optim.Optimizer], None]) -> None:
        """The same on both sides."""
        do(self.model, self.optimizer)
        do(self.mirror, self.other)

    def clear_state(self) -> None:
        self.change(lambda model, optimizer: optimizer.state.clear())

    def drop_state(self) -> None:
        i = self.random.randrange(4)
        self.change(lambda model, optimizer: optimizer.state.pop(list(model.parameters())[i], None))

    def scale_state(self) -> None:
        i, by = self.random.randrange(4), self.random.choice([0.5, 2.0])
        fresh = self.random.random() < 0.5

        def scale(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            state = optimizer.state.get(list(model.parameters())[i], {})
            for key, value in list(state.items()):
                if isinstance(value, torch.Tensor) and value.dim():
                    if fresh:
                        state[key] = value * by
                    else:
                        value.mul_(by)

        self.change(scale)

    def scale_parameter(self) -> None:
        i = self.random.randrange(4)

        def scale(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            with torch.no_grad():
                list(model.parameters())[i].mul_(0.75)

        self.change(scale)

    def count(self) -> None:
        i, steps = self.random.randrange(4), self.random.randrange(1, 9)

        def write(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            state = optimizer.state.get(list(model.parameters())[i], {})
            if isinstance(state.get("step"), torch.Tensor):
                state["step"].fill_(float(steps))
            elif "step" in state:
                state["step"] = steps

        self.change(write)

    def eager_step(self) -> None:
        if isinstance(self.optimizer, SignSGD):
            return  # its own step replaces `p.data`, which a compiled step refuses to follow
        if isinstance(self.optimizer, torch.optim.ASGD) and self.device == "cuda":
            return  # torch computes its rate in f32 there, by foreach, and in f64 for the mirror on the CPU
        batch = self.batch()

        def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            optimizer.zero_grad()
            on = to_device(batch, str(next(model.parameters()).device))
            Loss(first_loss)(model, on).backward()
            optimizer.step()

        self.change(step)

    def reload(self) -> None:
        self.model.load_state_dict(copy.deepcopy(self.mirror.state_dict()))
        self.optimizer.load_state_dict(copy.deepcopy(self.other.state_dict()))


EVENTS = (
    [Life.train_step] * 4
    + [Life.replay] * 4
    + [
        Life.warmup,
        Life.profile,
        Life.overflow,
        Life.evaluation,
        Life.certificate,
        Life.metrics,
        Life.reset,
        Life.recompile,
        Life.snapshot,
        Life.restore,
        Life.save,
        Life.load,
        Life.learning_rate,
        Life.limits,
        Life.clear_state,
        Life.drop_state,
        Life.scale_state,
        Life.scale_parameter,
        Life.count,
        Life.eager_step,
        Life.reload,
    ]
)


def test_random_lives(device: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    first = int(request.config.getoption("--seed"))
    for seed in range(first, first + int(request.config.getoption("--lives"))):
        life = Life(seed, device, tmp_path)
        done: list[str] = []
        for _ in range(LENGTH):
            event = life.random.choice(EVENTS)
            done.append(event.__name__)
            try:
                event(life)
                life.check()
            except BaseException as error:
                error.add_note(f"seed {seed}, {life!r}\nafter {', '.join(done)}")
                raise
