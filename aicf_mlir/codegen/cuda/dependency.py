"""The wait that every kernel begins with, so that launches in front of it may still run when it is started."""

from __future__ import annotations

import re

WAIT = "dependency_wait();"

_KERNEL = re.compile(r"__global__[^{;]*?(\w+)\(\s[^{;]*\{\s*([^;]*;)")


def waiting(source: str) -> dict[str, bool]:
    """By the name of each kernel in CUDA C++ as it is generated here: whether its first statement is the wait."""
    return {name: first == WAIT for name, first in _KERNEL.findall(source)}


def all_wait(source: str) -> bool:
    """Whether all kernels of a text do, and there is one."""
    found = waiting(source)
    return bool(found) and len(found) == source.count("__global__") and all(found.values())
