"""Memory that ranks share: what each gives comes to all, in any size, and who does not come is named."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import numpy as np
import pytest

from aicf_mlir import _C, StateError

RANKS = 3
SIZES = (0, 1, 24, 65535, 65536, 65537, 300_001)


def boards(folder: Path) -> list[_C.Board]:
    path = folder / "board"
    path.write_bytes(bytes(_C.Board.bytes(RANKS)))
    opened = [_C.Board(str(path), rank, [-1] * RANKS) for rank in range(RANKS)]
    path.unlink()
    return opened


def on_each(work: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(work, range(RANKS)))


def test_all_get_what_each_gives(tmp_path: Path) -> None:
    opened = boards(tmp_path)
    sizes = [Random(0).choice(SIZES) for _ in range(60)]

    def rank(number: int) -> None:
        pause = Random(number)
        for step, size in enumerate(sizes):
            if pause.random() < 0.1:
                sleep(0.004)
            given = [np.random.default_rng([step, each]).integers(256, size=size) for each in range(RANKS)]
            into = np.full(RANKS * size, 77, np.uint8)
            opened[number].exchange(given[number].astype(np.uint8), into, 60.0)
            np.testing.assert_array_equal(into, np.concatenate(given))

    on_each(rank)


def test_another_size_and_a_late_rank_end_it_for_all(tmp_path: Path) -> None:
    opened = boards(tmp_path)

    def rank(number: int, size: int, seconds: float) -> str:
        try:
            opened[number].exchange(np.zeros(size, np.uint8), np.zeros(RANKS * size, np.uint8), seconds)
        except StateError as error:
            return str(error)
        return ""

    told = on_each(lambda number: rank(number, 8 if number == 1 else 9, 60.0))
    assert any("rank 1 gives 8" in each for each in told)
    assert all(rank(number, 9, 60.0) == "an exchange before this one has failed" for number in range(RANKS))
    opened[:] = boards(tmp_path)
    assert rank(0, 9, 0.05) == "rank 1 has not come in time"
    assert rank(1, 9, 0.05) == "rank 2 has not come in time"  # rank 0 came before it left
    assert rank(2, 9, 60.0) == ""
    with pytest.raises(ValueError, match="a place for what each rank gives"):
        opened[2].exchange(np.zeros(8, np.uint8), np.zeros(16, np.uint8), 1.0)
