"""The processor of this machine, as Linux tells it."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
BASELINE = "x86-64"
LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v2": frozenset({"cx16", "popcnt", "ssse3", "sse4_1", "sse4_2"}),
    "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
}
"""The features that each level of x86-64 adds to the one before, in the words of /proc/cpuinfo."""


@cache
def _cpu_info() -> dict[str, str]:
    """The first processor in /proc/cpuinfo; empty if there is none."""
    if not CPU_INFO.exists():
        return {}
    first = CPU_INFO.read_text().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def name() -> str:
    """The name of the processor."""
    return _cpu_info().get("model name") or platform.processor() or "unknown processor"


def flags() -> str:
    """The features of the processor, in the words of /proc/cpuinfo; empty if there is none."""
    return _cpu_info().get("flags", "")


def levels() -> list[str]:
    """The levels of x86-64 that it has, the lowest first; none on another architecture."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    return levels_of(frozenset(flags().split()))


def levels_of(flags: frozenset[str]) -> list[str]:
    """The levels whose instructions, and the instructions of every level below, are all among `flags`."""
    levels = [BASELINE]
    for level, needed in LEVELS.items():
        if not needed <= flags:
            break
        levels.append(level)
    return levels
