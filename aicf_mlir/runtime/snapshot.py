"""Snapshots: everything a step changes, one copy per arena."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aicf_mlir import _C
from aicf_mlir.runtime.store import Store

MUTABLE_ROLES = ("param", "state", "meta")


@dataclass(frozen=True)
class Snapshot:
    """The parameters, optimizer state and meta slots of a compiled step at one moment, on the step's device."""

    owner: object = field(repr=False)
    arenas: dict[str, _C.Arena] = field(repr=False)
    settings: list[dict[str, Any]]
    """What the param groups held."""
    published: tuple[str, ...]
    """The parameters that had an entry in `optimizer.state` (there is none before the first step)."""

    @property
    def nbytes(self) -> int:
        """Bytes of device memory this snapshot holds."""
        return sum(arena.nbytes for arena in self.arenas.values())


def mutable_arenas(store: Store) -> list[str]:
    """The arenas that hold something that a step changes."""
    return sorted({slot.arena for (role, _), slot in store.slots.items() if role in MUTABLE_ROLES})


def copy_arenas(store: Store, stream: int) -> dict[str, _C.Arena]:
    """Copies of the arenas that a step changes, ordered on `stream`."""
    copies = {name: _C.Arena(store.device, store.arenas[name].nbytes) for name in mutable_arenas(store)}
    for name, copy in copies.items():
        copy.copy_from(store.arenas[name], stream)
    return copies


def restore_arenas(store: Store, saved: dict[str, _C.Arena], stream: int) -> None:
    """Put back what belongs to this step; what only other steps use stays as it is."""
    for name, offset, nbytes in store.intervals:
        if name in saved:
            store.arenas[name].copy_from(saved[name], stream, offset, nbytes)
