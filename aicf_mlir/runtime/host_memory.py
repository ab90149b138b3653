"""The amount of memory, checked before a plan takes its own. No torch, no device."""

from __future__ import annotations

import os

from aicf_mlir.errors import PlanError


def host_memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(nbytes: int, what: str, present: int | None = None) -> None:
    """Refuse an amount that does not fit into `present` bytes (this machine's), before anything is allocated."""
    present = host_memory() if present is None else present
    if nbytes > present:
        raise PlanError(
            f"{what} needs {nbytes / 2**30:,.1f} GiB of memory, this machine has {present / 2**30:,.1f}"
        )
