"""Lifetimes of memory: from the first write of a temporary to its last use, counted in launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import SlotOp


def live_ranges(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> dict[str, tuple[int, int]]:
    """First and last launch that touches each owner of memory, itself or through an alias."""
    ranges: dict[str, tuple[int, int]] = {}
    for index, launch in enumerate(launches):
        for name in launch.touched:
            root = slots[name].root
            first, _ = ranges.get(root, (index, index))
            ranges[root] = (first, index)
    return ranges
