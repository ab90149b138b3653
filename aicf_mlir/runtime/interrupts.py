"""Signals that wait: what must happen whole is not left half done by Ctrl-C or a handler that raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_HELD = tuple(
    number
    for name in ("SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGINT")
    if (number := getattr(signal, name, None)) is not None
)
"""SIGINT last, so that it is given back last."""


@contextmanager
def held() -> Generator[Sequence[object]]:
    """Run the block to its end; Python's handlers of signals that come meanwhile are called after it, in order.

    The block gets the list of those that wait. Python calls handlers in the main thread only, so elsewhere there is
    nothing to hold.
    """
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    pending: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}

    def wait(number: int, frame: FrameType | None) -> None:
        pending.append((number, frame))

    try:
        for number in _HELD:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, wait)
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in pending:
            before[number](number, frame)
