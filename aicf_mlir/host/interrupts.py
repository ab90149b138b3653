"""Delayed signals: an atomic action is not left half done by Ctrl-C or a handler that raises."""

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
def held(at_most: float | None = None) -> Generator[Sequence[object]]:
    """Run the block to its end; Python's handlers of signals that come meanwhile are called after it, in order.

    With `at_most`, seconds, none waits longer than that, or until it comes a second time, as Ctrl-C from an insistent user: for
    blocks that run code of the user's, which may never end. The block gets the list of the waiting signals. Python calls handlers
    in the main thread only, so elsewhere there is nothing to hold.
    """
    if threading.current_thread() is not threading.main_thread():
        yield ()
        return
    pending: list[tuple[int, FrameType | None]] = []
    before: dict[int, Any] = {}
    reminders: list[threading.Timer] = []
    is_over = False

    def wait(number: int, frame: FrameType | None) -> None:
        if at_most is None:
            pending.append((number, frame))
        elif all(number != waiting for waiting, _ in pending):
            pending.append((number, frame))
            reminders.append(_reminder(at_most, number))
        elif not is_over:
            pending[:] = [(waiting, where) for waiting, where in pending if waiting != number]
            before[number](number, frame)

    try:
        for number in _HELD:
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, wait)
        yield pending
    finally:
        is_over = True
        for reminder in reminders:
            reminder.cancel()
            reminder.join()  # its signal arrives before the handlers are restored
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in pending:
            before[number](number, frame)


def _reminder(seconds: float, number: int) -> threading.Timer:
    """Sends the signal to this thread once more after `seconds`."""
    timer = threading.Timer(seconds, signal.pthread_kill, (threading.get_ident(), number))
    timer.daemon = True
    timer.start()
    return timer
