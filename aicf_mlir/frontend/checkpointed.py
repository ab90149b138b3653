"""`torch.utils.checkpoint` while a step is traced: its function is called once for its value, and again for what it writes.

Torch calls the function again where the gradient is taken. A step has its values, so a second call is needed only if the
first one writes to a buffer: running statistics of a norm follow the batch twice.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import get_ident
from typing import Any

import torch

CHECKPOINT: Any = import_module("torch.utils.checkpoint")
AROUND = "_checkpoint_without_reentrant_generator"
"""What a checkpoint does around its function, to compute it again in a gradient."""
BETWEEN = 5
"""Its arguments after the function and before those of the function."""


class Checkpoints:
    """The checkpoints that one call of a step meets."""

    def __init__(self) -> None:
        self._buffers: Sequence[torch.Tensor] = ()
        self._writing: list[Callable[[], object]] = []
        """The calls that are made again, and that write to buffers."""

    @contextmanager
    def traced(self, buffers: Sequence[torch.Tensor]) -> Generator[None]:
        """Trace a step inside, in this thread."""
        thread, theirs, self._buffers = get_ident(), getattr(CHECKPOINT, AROUND), buffers

        def around(*args: Any, **kwargs: Any) -> Any:
            if get_ident() != thread:
                return theirs(*args, **kwargs)
            return self._around(lambda: args[0](*args[1 + BETWEEN :], **kwargs))

        setattr(CHECKPOINT, AROUND, around)
        try:
            yield
        finally:
            setattr(CHECKPOINT, AROUND, theirs)

    def call(self, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return the value of a checkpointed function."""
        around = self._around(lambda: function(*args))
        next(around)
        result = function(*args)
        next(around, None)
        return result

    def call_again(self) -> None:
        """Make the calls again that torch makes where the gradient is taken, the last one first."""
        calls, self._writing = self._writing, []
        with torch.no_grad():
            for call in reversed(calls):
                call()

    def _around(self, call: Callable[[], object]) -> Generator[None]:
        before = self._versions()
        yield
        if torch.is_grad_enabled() and before != self._versions():
            self._writing.append(call)

    def _versions(self) -> list[int]:
        return [buffer._version for buffer in self._buffers]
