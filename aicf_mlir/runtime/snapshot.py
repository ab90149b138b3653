"""Snapshots: everything a step changes, packed into one piece of memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aicf_mlir import _C
from aicf_mlir.ir.roles import SAVED, Saved
from aicf_mlir.runtime.homes import is_updated
from aicf_mlir.runtime.store import Store


class ArenaRange(NamedTuple):
    """A range of an arena, and its place in a snapshot."""

    arena: str
    offset: int
    """The offset in bytes, like the other numbers."""
    nbytes: int
    at: int


@dataclass(frozen=True)
class Snapshot:
    """The data that a compiled step changes, at one moment: on the step's device, or on the host."""

    owner: object = field(repr=False)
    memory: _C.Arena = field(repr=False)
    pieces: tuple[ArenaRange, ...] = field(repr=False)
    settings: list[dict[str, Any]]
    """The content of the param groups."""
    published: tuple[str, ...]
    """The parameters that had an entry in `optimizer.state` (there is none before the first step)."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory this snapshot holds."""
        return self.memory.nbytes


def packed(ranges: Iterable[tuple[str, int, int]]) -> tuple[tuple[ArenaRange, ...], int]:
    """Return places for ranges (arena, offset, bytes), packed in order, and the total bytes."""
    pieces: list[ArenaRange] = []
    end = 0
    for arena, offset, nbytes in ranges:
        pieces.append(ArenaRange(arena, offset, nbytes, end))
        end += nbytes
    return tuple(pieces), end


def changing(store: Store) -> list[tuple[str, int, int]]:
    """Return (arena, offset, bytes) of the memory of `store` that some step changes, by the table of roles.

    Own arenas with a changing role are taken whole; from other steps' arenas, only the slots that it uses.
    """
    whole = [name for name in store.arenas if SAVED.get(name) is Saved.WHOLE]
    single = [
        (slot.arena, slot.offset, slot.nbytes)
        for (role, _), slot in store.slots.items()
        if slot.arena not in whole
        and (SAVED[role] is Saved.WHOLE or _is_changed(store, SAVED[role], slot.arena, slot.offset))
    ]
    return [(name, 0, store.arenas[name].nbytes) for name in whole] + single


def _is_changed(store: Store, saved: Saved, arena: str, offset: int) -> bool:
    return saved is Saved.CHANGED and is_updated(store.arenas[arena], offset)


def copied(store: Store, stream: int, on_host: bool) -> tuple[_C.Arena, tuple[ArenaRange, ...]]:
    """Return a copy of the changing memory, ordered on `stream`: on the device, or on the host, where it is then complete."""
    pieces, nbytes = packed(changing(store))
    memory = _C.Arena("cpu" if on_host else store.device, nbytes)
    for arena, offset, size, at in pieces:
        store.arenas[arena].copy_out(offset, memory.ptr + at, size, stream)
    return memory, pieces


def put_back(store: Store, snapshot: Snapshot, stream: int) -> None:
    """Restore all that `snapshot` holds; memory that only other steps use stays unchanged."""
    for arena, offset, size, at in snapshot.pieces:
        store.arenas[arena].copy_in(offset, snapshot.memory.ptr + at, size, stream)
