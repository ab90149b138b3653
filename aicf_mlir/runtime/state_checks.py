"""What a parameter's entries in an optimizer's state must be, for a compiled step to take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.optimizers.slots import STEP

if TYPE_CHECKING:
    from aicf_mlir.runtime.optimizer_state import BoundParameter


def check_complete(bound: BoundParameter, counted: bool, saved: Mapping[str, Any]) -> None:
    """Check that all entries of a parameter are there, or none: a step makes them together, and torch's raises KeyError
    without one.

    For an optimizer that counts in its state any entry is state; for others, such as SGD, only entries known by name
    are.
    """
    keys = bound.own
    if counted and bound.count is not None:
        keys = [STEP, *bound.vectors, *keys]
    missing = [key for key in keys if saved.get(key) is None]
    if needed := [key for key in missing if key in bound.needed]:
        raise BindError(
            f"optimizer state {', '.join(map(repr, needed))} of parameter {bound.name!r} is missing, and only the optimizer can"
            " begin it; take a step of the optimizer itself, or load a state_dict with it"
        )
    if missing and (len(missing) < len(keys) or (counted and saved)):
        raise BindError(
            f"optimizer state {', '.join(map(repr, missing))} of parameter {bound.name!r} is missing;"
            " load a state_dict with it, or remove all state of the parameter, which then begins anew"
        )


def check_count(name: str, value: Any) -> None:
    count = value if isinstance(value, (int, float)) else None
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        count = float(value)
    if count is None or not count >= 0:
        raise BindError(
            f"optimizer state {STEP!r} of parameter {name!r}: expected a number of steps, got {value!r}"
        )


def check_numbers(bound: BoundParameter, saved: Mapping[str, Any]) -> None:
    """Check that the numbers other than the count are numbers."""
    for key in bound.vectors:
        value = saved[key]
        if not (isinstance(value, (int, float)) or _is_number(value)):
            raise BindError(
                f"optimizer state {key!r} of parameter {bound.name!r}: expected a number, got {value!r}"
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1


def check_same(name: str, key: str, value: Any, target: torch.Tensor) -> None:
    if isinstance(value, (int, float)) and not target.dim():
        return
    if not isinstance(value, torch.Tensor) or value.shape != target.shape:
        got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise BindError(
            f"optimizer state {key!r} of parameter {name!r}: expected a tensor of shape {tuple(target.shape)}, got {got}"
        )
