"""Numbers of a step itself that the host may change between steps: no values of a model, no entries of a param group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class StepNumber:
    """One of them: it belongs to what was asked to be compiled, so that it survives `recompile()`."""

    value: float
    check: Callable[[object, str], float]
    """Gives a new value as a float; raises BindError, with the name that it is given, for what is none."""
