"""A step of an optimizer from the states that it has: it has made them with itself, or in a step before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch

from aicf_mlir.frontend.traced_optimizer.graph import (
    Number,
    OptimizerGraph,
    OptimizerModule,
    StateKey,
    export_step,
)
from aicf_mlir.frontend.traced_optimizer.settings import GroupSettings

NUMBERS: WeakKeyDictionary[torch.optim.Optimizer, dict[tuple[int, str], type[Number]]] = WeakKeyDictionary()
"""The states of a compiled optimizer that are Python numbers for it, by the id of the parameter and the key: they are tensors
while a step lives.
"""


def kept_states(
    optimizer: torch.optim.Optimizer, params: Sequence[torch.Tensor]
) -> dict[StateKey, torch.Tensor | type[Number]]:
    """Return the states that the optimizer has already, of numbers the type: those of its steps, or those that it has made
    with itself.
    """
    numbers, found = NUMBERS.get(optimizer, {}), dict[StateKey, torch.Tensor | type[Number]]()
    for index, param in enumerate(params):
        entries: dict[str, Any] = optimizer.state.get(param) or {}
        for key, value in entries.items():
            if kind := numbers.get((id(param), key)):
                found[index, key] = kind
            elif isinstance(value, (bool, int, float)):
                found[index, key] = type(value)
            elif isinstance(value, torch.Tensor):
                found[index, key] = value
    return found


def begun_step(
    optimizer: torch.optim.Optimizer,
    members: Sequence[Sequence[int]],
    settings: Sequence[GroupSettings],
    kept: Mapping[StateKey, torch.Tensor | type[Number]],
    like: Sequence[torch.Tensor],
    numbers: Sequence[torch.Tensor],
    fallback: Any,
) -> OptimizerGraph:
    """Return a step from the states that the optimizer has, where there is none from no state."""
    tensors = [
        torch.zeros(value.shape, dtype=value.dtype, device="cpu")
        if isinstance(value, torch.Tensor)
        else torch.tensor(0.0, dtype=torch.float64, device="cpu")
        for value in kept.values()
    ]
    states = [(key, not isinstance(value, torch.Tensor)) for key, value in kept.items()]
    nothing = [()] * len(settings)
    module = OptimizerModule(optimizer, members, settings, states, nothing)
    found = export_step(module, [*like, *tensors, *numbers], fallback)
    found.module.record.kinds |= {
        key: value for key, value in kept.items() if not isinstance(value, torch.Tensor)
    }
    return found
