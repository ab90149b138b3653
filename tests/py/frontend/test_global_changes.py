"""Changes after compiling of what belongs to nobody, beside torch eager: followed, guarded or refused by name, never silent.

In a refusal, every byte of the step is as before; put back, the step goes on; compiled again, it does what torch does now.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch
from global_changes import CASES, Case
from global_worlds import World

from aicf_mlir import AicfError, compile_step, compile_train_step

MODES = ("train_step", "replay", "loop")


class Pair:
    """A compiled world beside one of torch."""

    def __init__(self, case: Case, mode: str):
        self.case, self.mode = case, mode
        self.ours, self.theirs = World(case.momentum), World(case.momentum)
        example = self.ours.batch(0)
        if mode == "loop":
            self.step: Any = compile_step(self.ours.body, example=example, device="cpu", name="world")
        else:
            self.step = compile_train_step(
                self.ours.model,
                self.ours.optimizer,
                loss_fn=World.loss_fn,
                example=example,
                device="cpu",
                name="world",
            )
        self.train(1, mode="train_step")
        self.step.capture(self.ours.batch(2))
        self.train(2)

    def train(self, seed: int, mode: str = "") -> None:
        """One step of each, which must agree."""
        batch = self.ours.batch(seed)
        loss = (
            self.step.replay(inputs=batch) if (mode or self.mode) == "replay" else self.step.train_step(batch)
        )
        close(loss, self.theirs.eager(batch))
        for name, value in self.ours.values().items():
            close(value, self.theirs.values()[name])

    @contextlib.contextmanager
    def changed(self) -> Generator[None]:
        """Inside, both worlds are changed."""
        with contextlib.ExitStack() as stack:
            for world in (self.ours, self.theirs)[: 1 if self.case.shared else 2]:
                stack.enter_context(self.case.change(world))
            yield

    def calls(self) -> list[Callable[[], object]]:
        batch = self.ours.batch(3)
        return [
            lambda: self.step.train_step(batch),
            lambda: self.step.replay(),
            lambda: self.step.replay(2, inputs=batch),
            lambda: self.step.warmup(batch),
            lambda: self.step.snapshot(),
        ]


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=2e-4, atol=2e-6)


def every_byte(step: Any) -> dict[str, bytes]:
    arenas = dict(step._store.arenas)
    for i, plan in enumerate(step._plans):
        arenas |= {f"{i}.{name}": arena for name, arena in plan.arenas.items()}
    return {name: arena.read(0, arena.nbytes) for name, arena in arenas.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_silent(name: str, mode: str) -> None:
    case = CASES[name]
    if mode == "loop" and not case.in_loop:
        return
    torch.set_num_threads(1)
    pair = Pair(case, mode)
    if case.outcome == "followed":
        with pair.changed():
            for seed in (3, 4):
                pair.train(seed)
        pair.train(5)
        return
    before = every_byte(pair.step)
    with pair.changed():
        for call in pair.calls():
            with pytest.raises(case.error, match=case.message):
                call()
    assert every_byte(pair.step) == before
    pair.train(4)
    with pair.changed():
        if case.outcome == "refused" or case.eager_fails:
            with pytest.raises(AicfError):
                pair.step.recompile()
        else:
            pair.step.recompile()
            for seed in (5, 6):
                pair.train(seed, mode="train_step")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.eager_fails])
def test_what_fails_in_torch(name: str) -> None:
    world = World(CASES[name].momentum)
    batch = world.batch(0)
    world.eager(batch)
    with CASES[name].change(world), pytest.raises((RuntimeError, KeyError, AttributeError, AssertionError)):
        world.eager(batch)


def test_the_table_is_long() -> None:
    assert len(CASES) >= 60
