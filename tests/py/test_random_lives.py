"""Random sequences of what a user may call and change, mirrored in torch eager: after each, the two agree.

`--lives N` sets how many sequences run, `--seed S` the first. All is float64, so that what differs is no rounding.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from aicf_mlir import compile_eval_step, compile_train_step

LENGTH = 30
Batch = dict[str, torch.Tensor]


def first_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch["x"]), batch["t"])


def second_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    y = model(batch["x"])
    return F.gelu(y - batch["t"]).square().mean() + 0.1 * y.square().mean()


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


OPTIMIZERS: list[Callable[[Any], torch.optim.Optimizer]] = [
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.25),
    lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda p: torch.optim.Adam(p, lr=0.02),
    lambda p: torch.optim.AdamW(p, lr=0.02, amsgrad=True),
    lambda p: torch.optim.Adamax(p, lr=0.02, weight_decay=0.01),
    lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True, eps=1e-3),
]


class Life:
    """A compiled training and its mirror."""

    def __init__(self, seed: int, device: str, folder: Path):
        self.random, self.device, self.folder = random.Random(seed), device, folder
        make = OPTIMIZERS[seed % len(OPTIMIZERS)]
        self.model, self.mirror = network().to(device), network().to(device)
        self.optimizer, self.other = make(self.model.parameters()), make(self.mirror.parameters())
        example = self.batch()
        options: Any = {"example": example, "device": device}
        self.steps = [
            compile_train_step(self.model, self.optimizer, loss_fn=loss, **options)
            for loss in (first_loss, second_loss)
        ]
        self.evaluate = compile_eval_step(self.model, loss_fn=first_loss, **options)
        self.losses = [first_loss, second_loss]
        self.saved: list[tuple[Any, Any, Any, Any]] = []
        self.files: list[tuple[int, Path, Any, Any]] = []
        self.loaded: list[Batch | None] = [None, None]

    def batch(self) -> Batch:
        generator = torch.Generator().manual_seed(self.random.randrange(10**6))
        shapes = {"x": (4, 5), "t": (4, 3)}
        return {
            k: torch.randn(s, generator=generator, dtype=torch.float64).to(self.device)
            for k, s in shapes.items()
        }

    def eager(self, which: int, batch: Batch) -> torch.Tensor:
        self.other.zero_grad()
        loss = self.losses[which](self.mirror, batch)
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        self.other.step()
        return loss.detach()

    def same_loss(self, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)

    def check(self) -> None:
        """Parameters and optimizer state are equal, entry for entry."""
        for p, q in zip(self.model.parameters(), self.mirror.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-8, atol=1e-11)
            ours, theirs = self.optimizer.state.get(p, {}), self.other.state.get(q, {})
            assert sorted(ours) == sorted(theirs)
            for key, value in theirs.items():
                if isinstance(value, torch.Tensor):
                    torch.testing.assert_close(
                        ours[key].double().cpu(), value.double().cpu(), rtol=1e-8, atol=1e-11
                    )

    # ---- what may happen ----

    def train_step(self) -> None:
        which, batch = self.random.randrange(2), self.batch()
        self.loaded[which] = batch
        self.same_loss(self.steps[which].train_step(batch), self.eager(which, batch))

    def replay(self) -> None:
        which, n = self.random.randrange(2), self.random.randrange(1, 4)
        step, batch = self.steps[which], self.loaded[which]
        if batch is None:
            batch = self.loaded[which] = self.batch()
        if step.state in ("created", "reset"):
            step.warmup(batch)
        if step.state != "captured":
            step.capture(batch)
        new = self.batch() if self.random.random() < 0.5 else None
        self.loaded[which] = batch = new or batch
        loss = step.replay(n, inputs=new)
        expected = [self.eager(which, batch) for _ in range(n)]
        self.same_loss(loss, expected[-1])

    def evaluation(self) -> None:
        batch = self.batch()
        with torch.no_grad():
            expected = first_loss(self.mirror, batch)
        self.same_loss(self.evaluate.eval_step(batch), expected)

    def reset(self) -> None:
        self.random.choice(self.steps).reset()

    def recompile(self) -> None:
        which = self.random.randrange(2)
        self.steps[which].recompile()
        self.loaded[which] = None
        self.saved = [s for s in self.saved if s[0] is not self.steps[which]]

    def snapshot(self) -> None:
        step = self.random.choice(self.steps)
        self.saved.append(
            (
                step,
                step.snapshot(),
                copy.deepcopy(self.mirror.state_dict()),
                copy.deepcopy(self.other.state_dict()),
            )
        )

    def restore(self) -> None:
        if self.saved:
            step, snapshot, model, optimizer = self.random.choice(self.saved)
            step.restore(snapshot)
            self.mirror.load_state_dict(model)
            self.other.load_state_dict(copy.deepcopy(optimizer))

    def save(self) -> None:
        which = self.random.randrange(2)
        path = self.folder / f"{len(self.files)}.aicf"
        self.steps[which].save(path)
        self.files.append(
            (which, path, copy.deepcopy(self.mirror.state_dict()), copy.deepcopy(self.other.state_dict()))
        )

    def load(self) -> None:
        if self.files:
            which, path, model, optimizer = self.random.choice(self.files)
            self.steps[which].load(path)
            self.mirror.load_state_dict(model)
            self.other.load_state_dict(copy.deepcopy(optimizer))

    def learning_rate(self) -> None:
        value = self.random.choice([0.01, 0.03, 0.1])
        if self.random.random() < 0.5:
            self.steps[0].meta["lr"] = value
        else:
            self.optimizer.param_groups[0]["lr"] = value
        self.other.param_groups[0]["lr"] = value

    def both(self, change: Callable[[nn.Module, torch.optim.Optimizer], None]) -> None:
        change(self.model, self.optimizer)
        change(self.mirror, self.other)

    def parameter(self) -> nn.Parameter:
        return list(self.mirror.parameters())[self.random.randrange(4)]

    def clear_state(self) -> None:
        self.both(lambda model, optimizer: optimizer.state.clear())

    def drop_state(self) -> None:
        i = self.random.randrange(4)
        self.both(lambda model, optimizer: optimizer.state.pop(list(model.parameters())[i], None))

    def scale_state(self) -> None:
        i, by = self.random.randrange(4), self.random.choice([0.5, 2.0])
        fresh = self.random.random() < 0.5

        def change(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            state = optimizer.state.get(list(model.parameters())[i], {})
            for key, value in list(state.items()):
                if isinstance(value, torch.Tensor) and key != "step":
                    if fresh:
                        state[key] = value * by
                    else:
                        value.mul_(by)

        self.both(change)

    def scale_parameter(self) -> None:
        i = self.random.randrange(4)

        def change(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            with torch.no_grad():
                list(model.parameters())[i].mul_(0.75)

        self.both(change)

    def count(self) -> None:
        i, steps = self.random.randrange(4), float(self.random.randrange(1, 9))

        def change(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            state = optimizer.state.get(list(model.parameters())[i], {})
            if "step" in state:
                state["step"].fill_(steps)

        self.both(change)

    def eager_step(self) -> None:
        batch = self.batch()
        self.eager(0, batch)
        self.optimizer.zero_grad()
        first_loss(self.model, batch).backward()  # pyright: ignore[reportUnknownMemberType]
        self.optimizer.step()

    def reload(self) -> None:
        self.model.load_state_dict(copy.deepcopy(self.mirror.state_dict()))
        self.optimizer.load_state_dict(copy.deepcopy(self.other.state_dict()))


EVENTS = (
    [Life.train_step] * 4
    + [Life.replay] * 4
    + [
        *(
            Life.evaluation,
            Life.reset,
            Life.recompile,
            Life.snapshot,
            Life.restore,
            Life.save,
            Life.load,
            Life.learning_rate,
        ),
        *(
            Life.clear_state,
            Life.drop_state,
            Life.scale_state,
            Life.scale_parameter,
            Life.count,
            Life.eager_step,
            Life.reload,
        ),
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
                error.add_note(f"seed {seed}, after {', '.join(done)}")
                raise
