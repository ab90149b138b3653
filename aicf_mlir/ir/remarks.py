"""Remarks: missed transformations of a pass, and the conditions that prevented them.

A pass calls `remark(op, "not fused …")`; listeners register with `heard_by`, as `aicf-opt --remarks` does. If nobody listens a
remark is one look at a variable; a pass whose remark needs computation checks `wanted()` first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from xdsl.ir import Operation

Note = tuple[Operation, str]
"""An op that explains a remark, and its part in it."""

Listener = Callable[[Operation, str, tuple[Note, ...]], None]
"""A listener, called while the op is still in the module: a pass may erase it later."""

_LISTENER: ContextVar[Listener | None] = ContextVar("aicf_remarks", default=None)


def wanted() -> bool:
    """True if anybody listens."""
    return _LISTENER.get() is not None


def remark(op: Operation, message: str, *notes: Note) -> None:
    """Send `message` about `op` to the listeners."""
    if (listener := _LISTENER.get()) is not None:
        listener(op, message, notes)


@contextmanager
def heard_by(listener: Listener) -> Generator[None]:
    """Within the context, in this thread, `listener` receives every remark."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
