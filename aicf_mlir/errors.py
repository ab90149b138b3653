"""One hierarchy for everything AICF refuses. Each message says what was expected, what was got, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aicf_mlir.ir.locations import SourceLocation


Noted = tuple[Exception, Callable[[], bool] | None]
"""An error, and a function that says whether it would be raised without the code that notes it too."""

_made: ContextVar[list[Noted] | None] = ContextVar("_made", default=None)


class AicfError(Exception):
    """Base of every error that AICF raises for bad input or a refused request."""

    def __init__(self, *args: object):
        super().__init__(*args)
        note(self)


def note(error: Exception, is_raised_anyway: Callable[[], bool] | None = None) -> None:
    """Add an error to those of the innermost `noted` block of this thread, if there is one."""
    if (made := _made.get()) is not None:
        made.append((error, is_raised_anyway))


@contextmanager
def noted() -> Generator[list[Noted]]:
    """Yield the list of all errors of AICF that are made in the block, in this thread, and of those that are noted there."""
    made = list[Noted]()
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


class SettingError(AicfError):
    """A variable of the environment has a value that is none of its own; says which it may have."""


class TraceError(AicfError):
    """The model or the loss uses something that the front end cannot express; names the op, its shapes and the user's line."""

    def __init__(self, text: str, location: SourceLocation | None = None, reason: str = ""):
        super().__init__(text)
        self.location = location
        """The user's line and layer, where they are known."""
        self.reason = reason or text
        """The text without them."""


class VerifyError(AicfError):
    """IR that breaks the rules of its dialect."""


class LoweringError(AicfError):
    """An op that no lowering pattern turns into kernel ops, or a pass that left a step which breaks the rules."""


class SelectionError(AicfError):
    """No kernel, or not the named kernel, supports an op on the target; lists the candidates and their reasons."""


class PlanError(AicfError):
    """A plan that cannot run: unbound, overlapping or out-of-bounds slots."""


class LockError(AicfError):
    """A lock that is none, of another machine, or without a kernel for an op of the step; says the difference."""


class BindError(AicfError):
    """User tensors that do not match what was compiled: names, shapes, dtypes, device, or moved storage."""


class GuardError(AicfError):
    """Something that the step was compiled for is another one now: a value, a mode, a layer, a hook, a param group; names it."""


class StateError(AicfError):
    """A call in the wrong state; says which call is missing."""


class RankError(StateError):
    """A rank of the group has left, has failed, or is at another step than this one; names it. The step was skipped whole."""


class UncomparedError(AicfError):
    """A step cannot be compared with torch: torch's own step fails, or draws other random numbers; says why."""


class KernelError(AicfError):
    """A kernel call with wrong arguments, or one that the device refused."""


class CaptureError(AicfError):
    """Recording a step into a graph failed; nothing of it is left behind."""


class CheckpointError(AicfError):
    """A checkpoint that is missing, foreign, damaged or of another step; nothing was changed."""


class DataError(AicfError):
    """Values of a batch that the step cannot train on; the step was skipped whole and nothing has changed."""


class OutOfRangeError(DataError, IndexError):
    """A class index that is neither a class nor `ignore_index`; torch raises IndexError for it."""


class NonFiniteError(DataError, FloatingPointError):
    """A loss or a gradient that is NaN or infinite, in a step compiled with `check_finite=True`."""
