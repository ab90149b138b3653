"""Torch whose ops round otherwise: what each op of a step has rounded is moved by up to a unit in the last place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

Move = Callable[[torch.Tensor], torch.Tensor]


class MovedRoundings(TorchDispatchMode):
    """While active, moves each floating result of an op by `move`, forward and backward.

    Elements that no rounding has made stay: those that are one of an operand's up to the sign, 0, and results of ops
    without floating operands. Views and writes in place stay as well.
    """

    def __init__(self, move: Move):
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._move = move

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if func._schema.is_mutable or func.is_view:
            return made
        operands = [
            leaf.detach().to("cpu", torch.float64).abs().flatten()
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        ]
        if not operands:
            return made
        taken = torch.cat([*operands, operands[0].new_zeros(1)])

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_floating_point():
                return tensor
            is_taken = torch.isin(tensor.detach().to("cpu", torch.float64).abs(), taken)
            return torch.where(is_taken.to(tensor.device), tensor, self._move(tensor))

        return tree_map_only(torch.Tensor, moved, made)


def by_a_unit(generator: torch.Generator) -> Move:
    """Return a move by up to a unit in the last place of the tensor's type; whole numbers that it holds stay."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        unit = torch.finfo(tensor.dtype).eps
        noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
        value = tensor.detach().to("cpu", torch.float64)
        is_count = (value == value.round()) & (value.abs() <= 1 / unit)
        other = (value * (1 + unit * noise)).to(tensor.dtype)
        kept = is_count | ~other.isfinite()
        return torch.where(kept.to(tensor.device), tensor, other.to(tensor.device))

    return move
