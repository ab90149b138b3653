"""The ops in the graph of a loop body for torch's work outside it: gradients, updates, leaves, gradients that were left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_library: Any = torch.library.Library("aicf_train", "DEF")
_library.define("backward(Tensor loss, Tensor[] wrt) -> Tensor[]")
_library.define("update(Tensor[] params, Tensor[] grads) -> Tensor[]")
_library.define("written(Tensor value, int number) -> Tensor")
_library.define("leaf(Tensor value, int number) -> Tensor")
_library.define("left(Tensor param) -> Tensor")


def _like_all(_: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(tensor) for tensor in tensors]


def _updated(params: Sequence[torch.Tensor], _: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(param) for param in params]


def _leaf(value: torch.Tensor, _: int) -> torch.Tensor:
    return torch.empty_like(value)


for _name, _function in {
    "backward": _like_all,
    "update": _updated,
    "written": _leaf,
    "leaf": _leaf,
    "left": torch.empty_like,
}.items():
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    _library.impl(_name, torch.library.fallthrough_kernel, "Autograd")  # their results are leaves

_ops: Any = torch.ops.aicf_train

BACKWARD: Any = _ops.backward.default
"""The gradients of a loss, one of each tensor."""
UPDATE: Any = _ops.update.default
"""Parameters after a step of their optimizer, with these gradients."""
WRITTEN: Any = _ops.written.default
"""The value that the body itself writes to the leaf of that number, mostly a parameter: from there on it is a leaf, too."""
LEAF: Any = _ops.leaf.default
"""A tensor that is a leaf from there on, as by `requires_grad_()`; its number follows the parameters' numbers."""
LEFT: Any = _ops.left.default
"""The gradient of a parameter that an earlier call has left."""
