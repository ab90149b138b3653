"""Every bomb in a child of its own: refused or read, in bounded memory, and no bug of ours."""

from __future__ import annotations

import pytest
from bombs import BOMBS, TOOLS
from workers import MEGABYTES, run_all

RUNNABLE = (
    "recursion",
    "mutual recursion",
    "call without a body",
    "scalar operand",
    "unused temporary",
    "huge tensor",
)
"""Small texts that were a danger to aicf-run, not to the parser."""


@pytest.mark.parametrize("tool", TOOLS)
def test_bombs(tool: str, pytestconfig: pytest.Config) -> None:
    """A quarter of those for aicf-opt in a usual run."""
    names = RUNNABLE
    if tool == "aicf-opt":
        names = list(BOMBS)[:: 1 if pytestconfig.getoption("campaign") else 4]
    for outcome in run_all("bombs", [f"{tool} {name}" for name in names]):
        assert outcome.outcome in ("refused", "read"), outcome
        assert outcome.megabytes <= MEGABYTES, outcome
        if tool == "aicf-run":
            assert outcome.outcome == "refused", outcome
