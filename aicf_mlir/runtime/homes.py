"""The live arena that holds a tensor's memory: a second step over the same tensors finds their place here."""

from __future__ import annotations

import weakref
from typing import NamedTuple

import torch

from aicf_mlir import _C

_sessions: weakref.WeakKeyDictionary[_C.Arena, _C.Session] = weakref.WeakKeyDictionary()
"""The arenas that outlive a step, and the session that guards each."""


_users: weakref.WeakKeyDictionary[_C.Arena, weakref.WeakSet[object]] = weakref.WeakKeyDictionary()
"""The stores of the steps that use each arena."""


_updated: weakref.WeakKeyDictionary[_C.Arena, set[int]] = weakref.WeakKeyDictionary()
"""The offsets in each arena that a compiled step updates."""


class Home(NamedTuple):
    """A place in an arena that exists already."""

    arena: _C.Arena
    offset: int
    """The offset in bytes."""
    session: _C.Session


def register(arena: _C.Arena, session: _C.Session) -> None:
    """Make the tensors in `arena` known to steps that are compiled later."""
    _sessions[arena] = session


def home_of(tensor: torch.Tensor) -> Home | None:
    """Return the place of a dense tensor, if that is in the arena of a compiled step."""
    if tensor.is_meta or not tensor.numel() or not tensor.is_contiguous():
        return None
    address = tensor.data_ptr()
    for arena, session in list(_sessions.items()):
        if (
            arena.ptr <= address < arena.ptr + arena.nbytes
            and tensor.device.type == arena.device.partition(":")[0]
        ):
            return Home(arena, address - arena.ptr, session)
    return None


def note_update(arena: _C.Arena, offset: int) -> None:
    """Note that a launch of a compiled step writes to `offset` of an arena that outlives the step."""
    _updated.setdefault(arena, set()).add(offset)


def is_updated(arena: _C.Arena, offset: int) -> bool:
    """True if a compiled step, this or another, updates the tensor at `offset`."""
    return offset in _updated.get(arena, ())


def use(arena: _C.Arena, store: object) -> None:
    """Note that the step of `store` uses `arena`."""
    _users.setdefault(arena, weakref.WeakSet()).add(store)


def is_only_user(arena: _C.Arena, store: object) -> bool:
    """True if no other step uses `arena`."""
    return all(user is store for user in _users.get(arena, ()))
