"""Numbers of a step itself that the host may change between steps: neither values of a model nor entries of a param group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class StepNumber:
    """A number of the step: it belongs to the request to compile, and survives `recompile()`."""

    value: float
    check: Callable[[object, str], float]
    """Returns a new value as a float. Raises BindError, with the given name, for an invalid one."""
