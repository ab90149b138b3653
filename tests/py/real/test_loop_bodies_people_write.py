"""Loop bodies as people write them train as torch does: what they return, parameters, states of optimizers and their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from loop_bodies import World
from loop_bodies_of_projects import OF_PROJECTS
from loop_bodies_people_write import BODIES
from loop_pieces import AFTER, BETWEEN, RESULTS, world

from aicf_mlir import compile_step

Make = Callable[[], World]

CASES: dict[str, Make] = {
    **BODIES,
    **OF_PROJECTS,
    **{f"between: {name}": partial(world, between=piece) for name, piece in BETWEEN.items()},
    **{f"after: {name}": partial(world, after=piece) for name, piece in AFTER.items()},
    **{f"returns {name}": partial(world, result=piece) for name, piece in RESULTS.items()},
}


def made(make: Make) -> World:
    """The same world each time."""
    torch.manual_seed(0)
    return make()


def assert_same(got: Any, wanted: Any) -> None:
    """The same containers, kinds of numbers, and values."""
    assert isinstance(got, type(wanted))
    if dataclasses.is_dataclass(wanted):
        got, wanted = vars(got), vars(wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        got, wanted = list(got.values()), list(wanted.values())
    if isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, (str, type(None))):
        assert got == wanted
    else:
        torch.testing.assert_close(
            torch.as_tensor(got).detach(), torch.as_tensor(wanted).detach(), rtol=2e-5, atol=2e-6
        )


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_torch(name: str) -> None:
    ours, theirs = made(CASES[name]), made(CASES[name])
    draw = torch.Generator().manual_seed(1)
    batches = [ours.batch(draw) for _ in range(5)]
    step = compile_step(ours.body, example=batches[0], device="cpu")
    for number, batch in enumerate(batches):
        if number == 3:
            step.capture(batch)
        if number < 3:
            returned = step(batch)
        else:
            step.replay(inputs=batch)
            returned = step.returned
        assert_same(returned, theirs.body(batch))
    for got, wanted in zip(ours.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(got.detach(), wanted.detach(), rtol=2e-5, atol=2e-6)
    comparison = step.check(batches[0])
    assert comparison.equal, comparison
