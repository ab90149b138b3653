"""A sample of the models of installed packages; `make real` runs them all."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from children import run

ROOT = Path(__file__).parents[3]
SAMPLE = {
    "transformers": ("GPT-2", "mT5, gated", "ViT"),
    "learning": ("PPO", "DQN"),
}


@pytest.mark.parametrize("family", SAMPLE)
def test_is_as_the_table_says(family: str, pytestconfig: pytest.Config) -> None:
    """One of each family in a usual run: a process imports what its models need, which takes longer than they do."""
    chosen = SAMPLE[family][: None if pytestconfig.getoption("campaign") else 1]
    names = [f"{family}/{name}" for name in chosen]
    done = run([sys.executable, "-m", "tests.real", "--jobs", "1", "--only", *names], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f" of {len(names)} work" in done.stdout
