"""Random numbers that Python code draws while a step is traced: a compiled step would repeat them forever."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.values import is_a
from aicf_mlir.ir.locations import SourceLocation

REPEATED = (
    "a compiled step would repeat what it gave first; draw with torch (torch.rand), or outside of the step and pass the"
    " number as a tensor in the batch"
)


@contextmanager
def refused(location: SourceLocation | None) -> Generator[None]:
    """Run the user's code, which begins at `location`, and put back its draws from `random` and `numpy.random`.

    Raises TraceError if it has drawn.
    """
    python, numpy = random.getstate(), _numpy()
    names: list[str] = []
    try:
        yield
    finally:
        if random.getstate() != python:
            random.setstate(python)
            names.append("Python's random")
        if not all(map(np.array_equal, _numpy(), numpy)):
            np.random.set_state(cast(Any, numpy))  # noqa: NPY002 - the user's code draws from it
            names.append("numpy.random")
    if names:
        raise trace_error(f"the step draws random numbers of {' and '.join(names)}; {REPEATED}", location)


def refuse_generator(operand: object, location: SourceLocation | None) -> None:
    """Raise TraceError if a function of torch is given a generator: the step has its own random numbers."""
    if is_a(operand, torch.Generator):
        raise trace_error(
            f"the step draws from a torch.Generator{quoted(location)}, and a compiled step has random numbers of its own; leave"
            " generator= out, and begin them with seed= or step.seed(n)",
            location,
        )


def _numpy() -> tuple[Any, ...]:
    return cast(tuple[Any, ...], np.random.get_state())  # noqa: NPY002 - as above
