"""The wait at the beginning of kernels, so that earlier launches may still run when they are started.

A product that reads operands ahead waits after these reads, and begins with a marker for it. It reads ahead only values written
by launches further back, which are complete when it starts (dialects/plan/ahead.py).

Kernels of very many blocks do not wait. Each block pays for the wait, some half a microsecond of a life of one or two: a cast of
67 million elements took 83 us with it and 51 without on an H200. A launch without a wait has full edges.
"""

from __future__ import annotations

import re

from aicf_mlir.ir.chips import chip_of

WAIT = "dependency_wait();"
READ_AHEAD = "prefetch();"
"""The first statement of a kernel that waits after its reads ahead."""

_KERNEL = re.compile(r"__global__[^{;]*?(\w+)\(\s[^{;]*\{\s*([^;]*;)")


def are_many(blocks: int, target: str) -> bool:
    """True if a chip does not hold so many blocks at once."""
    return blocks > 16 * chip_of(target).processors


def without_wait(source: str) -> str:
    """The text of kernels that are started after all earlier launches have ended."""
    return re.sub(rf"\n *({re.escape(WAIT)}|{re.escape(READ_AHEAD)})", "", source)


def waiting(source: str) -> dict[str, bool]:
    """For each kernel name in the generated CUDA C++: True if the kernel begins with the wait, or with its reads ahead."""
    return {name: first in (WAIT, READ_AHEAD) for name, first in _KERNEL.findall(source)}


def all_wait(source: str) -> bool:
    """True if all kernels of a text do, and there is one."""
    found = waiting(source)
    return bool(found) and len(found) == source.count("__global__") and all(found.values())
