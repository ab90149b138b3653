"""Random bodies of training loops beside torch in float64, called and replayed in turns, and put back in between.

`--programs N` sets how many are tried, one for 25 programs; `--seed S` the first.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from compiled_bodies import assert_near, batches, compiled, flat, in_torch, made
from oracle import same_bits
from random_bodies import random_world

CALLS = 8


def tries(seed: int, device: str, folder: Path) -> None:
    """One body: torch's numbers after each call, the bits of its calls in a replay, and in a file."""
    ours, theirs = (made(lambda: random_world(seed), device, torch.float64) for _ in range(2))
    given = batches(ours, device, CALLS, torch.float64)
    step = compiled(ours, device, given[0])
    for number, batch in enumerate(given):
        if number % 4 < 2:
            returned = step(batch)
        else:
            if number == 2:
                step.capture(batch)
            step.replay(inputs=batch)
            returned = step.returned
        for got, wanted in zip(flat(returned), flat(in_torch(theirs, batch)), strict=True):
            torch.testing.assert_close(got, wanted.detach(), rtol=1e-8, atol=1e-9)
        assert_near(ours, theirs, 1e-8)
    for mine, their in zip(ours.schedulers, theirs.schedulers, strict=True):
        assert mine.get_last_lr() == their.get_last_lr()
    path = folder / "checkpoint"
    step.save(path)
    ends: list[list[torch.Tensor]] = []
    for replayed in (False, True):
        step.load(path)
        if replayed:
            step.replay(2, inputs=given[0])
        else:
            step(given[0])
            step(given[0])
        ends.append([t.detach().clone() for t in (*ours.tensors(), *flat(step.returned))])
    assert all(same_bits(eager, replay) for eager, replay in zip(*ends, strict=True))


def test_random_bodies(device: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    first = int(request.config.getoption("--seed"))
    for seed in range(first, first + max(1, int(request.config.getoption("--programs")) // 25)):
        try:
            tries(seed, device, tmp_path)
        except BaseException as error:
            error.add_note(f"random_world({seed})")
            raise
