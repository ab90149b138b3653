"""
The passes between a step and its plan, on random steps with thresholds that small tensors reach: after each the meaning is what
it was, and the plan computes it in memory that is garbage wherever nothing is held. Half of the steps take the passes of the
stages, the others some of them in random order.

`pytest -n 2 tests/py/random/test_random_passes.py --programs 1000 --seed 1000` runs as many as you like.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from unittest.mock import patch

import pass_checks
import pytest
from lowered_steps import lowered_step
from pass_checks import TARGETS, check_passes

from aicf_mlir.ir.body import Body
from aicf_mlir.passes import free_early, plan_memory, recompute
from aicf_mlir.passes.pipeline import unverified
from aicf_mlir.passes.recompute import Source


def test_each_pass_keeps_the_meaning(program_seed: int) -> None:
    check_passes(lowered_step(program_seed), TARGETS[program_seed % len(TARGETS)])


@contextmanager
def unrounded() -> Generator[None]:
    """What is computed again has more digits than what was stored."""
    made = recompute.source_of

    def source(*given: object) -> Source | None:
        found = made(*given)  # pyright: ignore[reportArgumentType]
        if found is None or not found.body.lines or found.body.lines[-1].op != "arith.extf":
            return found
        before = found.body.lines[-2].args[0]
        return found._replace(body=Body(found.body.args, found.body.lines, (before,)))

    with patch.object(recompute, "source_of", source):
        yield


@contextmanager
def shorter() -> Generator[None]:
    """A temporary is free while its last launch reads it."""
    made = plan_memory.temporaries

    def temporaries(program: object) -> object:
        return [each._replace(last=max(each.first, each.last - 1)) for each in made(program)]  # pyright: ignore[reportArgumentType]

    with patch.object(plan_memory, "temporaries", temporaries):
        yield


@contextmanager
def free() -> Generator[None]:
    """Launches move across those whose results they read."""
    with patch.object(free_early.Order, "is_free", lambda *_: True):
        yield


@contextmanager
def waiting_for_nothing() -> Generator[None]:
    """The order of launches that share memory is left out."""
    with patch.object(plan_memory, "order_launches", lambda *_: None):
        yield


FAULTS = {unrounded: 4, shorter: 3, free: 4, waiting_for_nothing: 0}
"""Faults of passes, and a step that shows each."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_wrong_is_found(fault: Callable[[], AbstractContextManager[None]]) -> None:
    """The rules of a plan would find most of them too: here they are left out."""
    seed = FAULTS[fault]
    unchecked = partial(pass_checks.run_passes, verifier=unverified)
    with (
        fault(),
        patch.object(pass_checks, "run_passes", unchecked),
        pytest.raises(AssertionError, match="after "),
    ):
        check_passes(lowered_step(seed), TARGETS[seed % len(TARGETS)])
