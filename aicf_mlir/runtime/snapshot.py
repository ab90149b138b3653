"""Snapshots: everything a step changes, one copy per arena."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aicf_mlir import _C

MUTABLE_ROLES = ("param", "state", "meta")


@dataclass(frozen=True)
class Snapshot:
    """The parameters, optimizer state and meta slots of a compiled step at one moment, on the step's device."""

    owner: object = field(repr=False)
    arenas: dict[str, _C.Arena] = field(repr=False)
    settings: list[dict[str, Any]]
    """What the param groups held."""
    published: bool
    """Whether `optimizer.state` held state (it is empty before the first step)."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory this snapshot holds."""
        return sum(arena.nbytes for arena in self.arenas.values())


def copy_arenas(arenas: dict[str, _C.Arena], device: str, stream: int) -> dict[str, _C.Arena]:
    """Copies of the arenas that a step changes, ordered on `stream`."""
    copies = {role: _C.Arena(device, arenas[role].nbytes) for role in MUTABLE_ROLES if role in arenas}
    for role, copy in copies.items():
        copy.copy_from(arenas[role], stream)
    return copies
