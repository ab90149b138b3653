"""What users do to a live model, optimizer or loss after compiling, beside torch eager: each is followed, or refused by name.

In a refusal, every byte of the step is as before.
"""

from __future__ import annotations

from typing import Any

import live_worlds
import pytest
import torch
from live_changes import FOLLOWED, REFUSED, Case
from live_worlds import World

from aicf_mlir import compile_train_step


@pytest.fixture(autouse=True)
def restored_globals():
    before = (
        live_worlds.GLOBAL_SCALE,
        live_worlds.shared_helper,
        live_worlds.Net.slope,
        live_worlds.Net.extra,
    )
    yield
    live_worlds.GLOBAL_SCALE, live_worlds.shared_helper, live_worlds.Net.slope, live_worlds.Net.extra = before  # type: ignore[misc]


def start(case: Case, device: str) -> tuple[World, World, Any]:
    ours, theirs = World(case.optimizer, device), World(case.optimizer, device)
    step = compile_train_step(
        ours.model,
        ours.optimizer,
        loss_fn=ours.loss_fn,
        example=ours.batch(0),
        device=device,
        name="live",
        meta=case.meta,
    )
    for seed in (1, 2):
        close("before", {"loss": step.train_step(ours.batch(seed))}, {"loss": theirs.eager(seed)})
    step.capture(ours.batch(2))
    return ours, theirs, step


def close(when: str, ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert sorted(ours) == sorted(theirs), when
    for name, value in ours.items():
        torch.testing.assert_close(
            value.float().cpu(),
            theirs[name].float().cpu(),
            rtol=2e-4,
            atol=2e-6,
            msg=lambda m, n=name: f"{when}: {n}: {m}",
        )


@pytest.mark.parametrize("replayed", [False, True], ids=["train_step", "replay"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_is_followed(name: str, replayed: bool, device: str) -> None:
    ours, theirs, step = start(FOLLOWED[name], device)
    FOLLOWED[name].change(ours)
    FOLLOWED[name].change(theirs)
    for seed in (3, 4, 5):
        loss = step.replay(inputs=ours.batch(seed)) if replayed else step.train_step(ours.batch(seed))
        close(name, {"loss": loss}, {"loss": theirs.eager(seed)})
    close(name, ours.values(), theirs.values())


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_nothing_changes(name: str, device: str) -> None:
    case = REFUSED[name]
    ours, _, step = start(case, device)
    before = arena_bytes(step)
    case.change(ours)
    for call in (
        lambda: step.train_step(ours.batch(3)),
        lambda: step.replay(),
        lambda: step.replay(2, inputs=ours.batch(3)),
        lambda: step.warmup(ours.batch(3)),
        lambda: step.snapshot(),
    ):
        assert case.error is not None
        with pytest.raises(case.error, match=case.message):
            call()
        assert arena_bytes(step) == before


def arena_bytes(step: Any) -> dict[str, bytes]:
    """Every byte that the step holds."""
    arenas = dict(step._store.arenas)
    for i, plan in enumerate(step._plans):
        arenas |= {f"{i}.{name}": arena for name, arena in plan.arenas.items()}
    return {name: arena.read(0, arena.nbytes) for name, arena in arenas.items()}


def test_the_table_is_long() -> None:
    """A new place to keep a value belongs into these tables."""
    assert len(FOLLOWED) + len(REFUSED) >= 100
