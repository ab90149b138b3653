"""torch.export patches the process while it traces: two traces at once fail with torch's internal errors.

A signal in the middle may leave torch's stack of modes corrupted, so signals wait, but not forever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from aicf_mlir.host.interrupts import held

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

PATIENCE = 5.0
"""Seconds that a signal waits for the end of a trace, which runs code of the user's."""

_lock = threading.RLock()


def _renew() -> None:
    """Renew the lock in a forked child, which has no thread that could release its parent's lock."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def one_at_a_time(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return `function` limited to one thread of the process at a time, while signals wait; all decorated functions
    share the lock.
    """

    @wraps(function)
    def waiting(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _lock, held(at_most=PATIENCE):
            return function(*args, **kwargs)

    return waiting
