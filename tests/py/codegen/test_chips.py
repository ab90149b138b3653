"""Every target of a GPU has a row in the table of chips, and nothing else knows how large a chip is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aicf_mlir import _C
from aicf_mlir.ir.chips import CHIPS, chip_of
from aicf_mlir.ir.registry import architecture

ROOT = Path(__file__).parents[3]
TARGETS = sorted({architecture(target) for target in _C.targets()} - {"cpu"})


def test_every_target_has_a_row() -> None:
    assert sorted(CHIPS) == TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_a_row_is_possible(target: str) -> None:
    chip = chip_of(f"{target}+cublaslt")
    assert chip == CHIPS[target]
    assert chip.shared_of_block <= chip.shared < chip.cache
    assert chip.filling <= 2048 * chip.processors < 2 * chip.filling
    assert chip.computed("bf16") == chip.computed("f16") > chip.computed("f32") == chip.computed(None)


@pytest.mark.parametrize(
    ("own", "pattern"),
    [
        ("chips.py", r"[=(*,] ?(132|264|528)\b|\"sm_\d+\": (\d|Chip)"),
        ("registry.py", r"(target|target\.data|architecture\S*) [=!]= \"cpu\"|cublaslt"),
    ],
    ids=["sizes of a chip", "whether a target is a CPU, and names of libraries"],
)
def test_one_file_knows(own: str, pattern: str) -> None:
    """Every other file asks it."""
    lines = {
        f"{path.relative_to(ROOT)}: {line.strip()}": path.name == own
        for path in (ROOT / "aicf_mlir").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(pattern, line)
    }
    assert lines, "the pattern finds nothing"
    assert [line for line, is_own in lines.items() if not is_own] == []
