"""bench/sweep_workers.py: cases side by side. A process that dies, or hangs, costs the case it is at, and it is named."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "bench"))

from sweep_workers import side_by_side  # noqa: E402


def begin(place: int, end: float) -> Callable[[str], Iterator[str]]:
    def work(task: str) -> Iterator[str]:
        for number in range(2):
            if time.time() >= end:
                return
            yield f"{task} {number}"
            if task == "dies":
                os._exit(3)
            if task == "hangs":
                time.sleep(1000)
            yield f"found {task} {number}"

    return work


def test_a_process_that_dies_costs_the_case_it_is_at() -> None:
    end = time.time() + 60
    outcome = side_by_side(begin, (end,), ["a", "dies", "b", "c"], 2, end)
    assert sorted(outcome.found) == [f"found {task} {number}" for task in "abc" for number in range(2)]
    assert outcome.unfinished == ["dies 0: exit code 3"] and not outcome.untouched


def test_a_case_that_hangs_is_ended_with_the_budget() -> None:
    end = time.time() + 4
    outcome = side_by_side(begin, (end,), ["hangs", "a"], 2, end)
    assert sorted(outcome.found) == ["found a 0", "found a 1"]
    assert outcome.unfinished == ["hangs 0: not done in time"] and not outcome.untouched


def test_tasks_that_have_not_begun_are_named() -> None:
    end = time.time() - 1
    outcome = side_by_side(begin, (end,), ["a", "b"], 1, end)
    assert not outcome.found and not outcome.unfinished and outcome.untouched == ["a", "b"]
