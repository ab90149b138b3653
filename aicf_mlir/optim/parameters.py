"""The parameters that an optimizer accepts: a module, or anything that torch takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

import torch

Parameters: TypeAlias = (
    torch.nn.Module | Iterable[torch.Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, torch.Tensor]]
)
"""A module, its parameters, its named parameters, or param groups whose "params" is any of these."""


def parameters_of(params: Parameters) -> Any:
    """`params` as torch's optimizers take it: each module replaced by its parameters."""
    if isinstance(params, torch.nn.Module):
        return params.parameters()
    if isinstance(params, torch.Tensor):
        return params  # torch has the right error for it
    return [_group(item) if isinstance(item, dict) else item for item in params]


def _group(group: dict[Any, Any]) -> dict[str, Any]:
    params = group.get("params")
    whole = cast(dict[str, Any], group)
    return {**whole, "params": list(params.parameters())} if isinstance(params, torch.nn.Module) else whole
