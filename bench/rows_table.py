"""What `rows_gpu.py` has found, row by row: who is fastest, and whether all trained the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from in_child import Part

Row = Mapping[str, Part]
"""What is known of each contender."""

OURS = "aicf"
"""As it is; its variants are called "aicf+…"."""

ALLOWED = {"f32": 0.02, "tf32": 0.05, "bf16": 0.1, "f16": 0.5}
"""How far `loss_off` may be, by precision.

Without a scale small gradients in f16 are rounded to few bits, or to nothing: with gradients of the size of 262144 rows,
torch's own loss in f16 is off by 0.27 after 100 steps of 64 × 4, in bf16 by 0.001.
"""


def is_ours(name: str) -> bool:
    """Whether it is AICF, in any variant."""
    return name.partition("+")[0] == OURS


def loss_off(row: Row, name: str) -> float | None:
    """How far a loss is from the median of the peers', as a part of what that has fallen since the first step."""
    losses = [part["loss"] for other, part in row.items() if not is_ours(other) and "loss" in part]
    firsts = [part["first"] for part in row.values() if "first" in part]
    if not losses or not firsts or "loss" not in row.get(name, {}):
        return None
    expected = statistics.median(losses)
    fallen = abs(statistics.median(firsts) - expected)
    return abs(row[name]["loss"] - expected) / fallen if fallen else math.inf


def differing(row: Row, precision: str) -> list[str]:
    """The contenders that train something else than most."""
    found = {name: loss_off(row, name) for name in row}
    return [name for name, off in found.items() if off is not None and not off <= ALLOWED[precision]]


def fastest(row: Row, ours: bool) -> str | None:
    """Of AICF's variants, or of its peers, those that were measured."""
    times = {name: part["us"] for name, part in row.items() if is_ours(name) == ours and "us" in part}
    return min(times, key=lambda name: times[name], default=None)


def ratio(row: Row) -> float | None:
    """The time of AICF's fastest variant to the best peer's."""
    best, ours = fastest(row, False), fastest(row, True)
    return row[ours]["us"] / row[best]["us"] if best and ours else None


def megabytes(row: Row, name: str) -> float | None:
    peak = row.get(name, {}).get("peak")
    return None if peak is None else peak / 1e6


def table(rows: Mapping[str, Row], names: Sequence[str]) -> str:
    """Markdown, a line for each row."""

    def by(row: Row) -> str:
        return fastest(row, True) or OURS

    columns: dict[str, Callable[[Row], object]] = {
        **{name: lambda row, name=name: cell(row.get(name, {}).get("us"), ".1f") for name in names},
        "best peer": lambda row: fastest(row, False) or "–",
        "AICF / best": lambda row: cell(ratio(row), ".2f"),
        "by": lambda row: fastest(row, True) or "–",
        "loss off": lambda row: cell(loss_off(row, by(row)), ".1e"),
        "MB aicf": lambda row: cell(megabytes(row, by(row)), ".0f"),
        "MB compile": lambda row: cell(megabytes(row, "compile"), ".0f"),
        "sum of launches": lambda row: cell(row.get(by(row), {}).get("launches"), ".1f"),
        "": lambda row: row.get(by(row), {}).get("note", ""),
    }
    lines = [["row", *columns], ["---"] * (1 + len(columns))]
    lines += [[title, *(str(column(row)) for column in columns.values())] for title, row in rows.items()]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in lines
    )


def cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
