"""Memory of a plan that no snapshot holds, though the user sees it: the batch, and the results of the last step."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from aicf_mlir import _C
from aicf_mlir.ir.roles import NAMED_ROLES, SHARED_ROLES

SEEN_ROLES = tuple(role for role in NAMED_ROLES if role not in SHARED_ROLES)
"""The roles of inputs, gradients and outputs: each plan has its own."""


@contextmanager
def kept_aside(arenas: Mapping[str, _C.Arena], stream: int) -> Generator[None]:
    """Restore, after the block, the current content of these arenas of a plan; ordered on `stream`."""
    copies: dict[str, _C.Arena] = {}
    for role in (role for role in SEEN_ROLES if role in arenas):
        copies[role] = _C.Arena(arenas[role].device, arenas[role].nbytes)
        copies[role].copy_from(arenas[role], stream)
    try:
        yield
    finally:
        for role, copy in copies.items():
            arenas[role].copy_from(copy, stream)
