"""torch.export patches the process while it traces: two traces at once fail with torch's internal errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_lock = threading.RLock()


def _renew() -> None:
    """A forked child has no thread that could release the lock of its parent."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew)


def one_at_a_time(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function`, for one thread of the process at a time; all functions decorated so wait for each other."""

    @wraps(function)
    def waiting(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _lock:
            return function(*args, **kwargs)

    return waiting
