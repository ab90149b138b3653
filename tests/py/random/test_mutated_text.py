"""Mutated texts through the tools; `pytest tests/py/random/test_mutated_text.py --mutants 20000` runs as many as you like."""

from __future__ import annotations

import pytest
from workers import run_all, summary


def test_mutated_texts_are_refused_or_read(pytestconfig: pytest.Config) -> None:
    count, first = int(pytestconfig.getoption("--mutants")), int(pytestconfig.getoption("--seed"))
    counts, faults = summary(run_all("texts", map(str, range(first, first + count))))
    assert not faults, "\n".join(faults)
    assert counts["refused"] > count / 2
    assert counts.keys() >= {"refused", "ran"}
