"""The move of the user's tensors to memory of their own, so that the arenas can be freed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from aicf_mlir import _C


def release_tensors(
    tensors: Iterable[torch.Tensor], optimizers: Iterable[torch.optim.Optimizer], arenas: Collection[_C.Arena]
) -> None:
    """Move the tensors in `arenas` to memory of torch, with values and identity kept.

    `tensors` are the user's parameters and buffers; of the optimizers, the state moves. A tensor that the user derived
    from them (views, `step.gradients`) keeps its arena alive until it is dropped.
    """
    for tensor in tensors:
        if lies_in(tensor, arenas):
            tensor.data = tensor.detach().clone()
    for optimizer in optimizers:
        states: Iterable[dict[str, Any]] = optimizer.state.values()
        for state in states:
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and lies_in(value, arenas):
                    state[key] = value.detach().clone()


def lies_in(tensor: torch.Tensor, arenas: Collection[_C.Arena]) -> bool:
    """True if a tensor's memory is in one of `arenas`."""
    address = tensor.data_ptr()
    return any(arena.ptr <= address < arena.ptr + arena.nbytes for arena in arenas)
