"""A warning for an optimizer of a compiled step that is stepped by hand: without gradients that does nothing. It
appears once.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch

from aicf_mlir.frontend import source

NOTHING_TO_DO = (
    "{}.step() found no gradient and did nothing: a compiled step updates the parameters itself and leaves no p.grad;"
    " compile with keep_gradients=True to have the gradients of each step there"
)

STEP, AFTER = "_aicf_step", "_optimizer_step_code"
"""Attributes of an optimizer: the compiled step, and the function that torch calls after each `step()`, for its profiler."""


def belongs_to(optimizer: torch.optim.Optimizer, step: Any) -> None:
    """Attach `step` to the optimizer, which warns the first time that it is stepped by hand without any gradient."""
    own = weakref.ref(optimizer)

    def after() -> None:
        owner = own()
        if owner is None or vars(owner)[STEP]() is None or has_gradient(owner):
            return
        del vars(owner)[AFTER]
        message, location = NOTHING_TO_DO.format(type(owner).__name__), source.here()
        if location is None:
            warnings.warn(message, stacklevel=2)
        else:
            warnings.warn_explicit(message, UserWarning, location.file, location.line)

    if STEP not in vars(
        optimizer
    ):  # a further step of the optimizer, or the same compiled again, adds nothing
        vars(optimizer)[AFTER] = after
    vars(optimizer)[STEP] = weakref.ref(step)


def let_go(optimizer: torch.optim.Optimizer, step: Any) -> None:
    """Remove the additions of `belongs_to`, if they belong to `step`."""
    if (reference := vars(optimizer).get(STEP)) is not None and reference() is step:
        del vars(optimizer)[STEP]
        vars(optimizer).pop(AFTER, None)


def has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    """True if any parameter has a gradient."""
    return any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
