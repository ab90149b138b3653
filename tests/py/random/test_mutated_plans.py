"""Mutated plans: what verifies runs, with the same bits whatever the memory held, and as the interpreter says.

`pytest tests/py/random/test_mutated_plans.py --mutants 25000` runs as many as you like; about one in five verifies.
"""

from __future__ import annotations

import pytest
from workers import run_all, summary


def test_mutated_plans_are_refused_or_run_alike(pytestconfig: pytest.Config) -> None:
    count, first = int(pytestconfig.getoption("--mutants")), int(pytestconfig.getoption("--seed"))
    counts, faults = summary(run_all("plans", map(str, range(first, first + count))))
    assert not faults, "\n".join(faults)
    assert counts.get("ran", 0) > count / 10, counts


def test_the_plans_that_are_changed_are_honest() -> None:
    from mutated_plans import BASES, base, run_text

    for index in range(0, BASES, 3):
        assert run_text(base(index)) == "ran"
