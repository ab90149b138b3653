"""Torch whose ops round otherwise: what each op of a step has rounded is moved by up to a unit in the last place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from aicf_mlir.interpreters.arithmetic import MIXER

Move = Callable[[torch.Tensor], torch.Tensor]

ROOM = 16
"""Places in a table for each number."""
LARGE = 1 << 22
"""The number of elements of results and operands above which an element is looked for at its own place alone."""


class MovedRoundings(TorchDispatchMode):
    """While active, moves each floating result of an op by `move`, forward and backward.

    Elements that no rounding has made stay: those that are one of an operand's up to the sign, 0, and results of ops
    without floating operands. Of large tensors, an element is compared with those at its place in operands of the same
    shape. Views, writes in place and sparse tensors stay as well.
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
            leaf.detach()
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and _is_dense_float(leaf)
        ]
        if not operands:
            return made

        def moved(tensor: torch.Tensor) -> torch.Tensor:
            if not _is_dense_float(tensor):
                return tensor
            return torch.where(_is_taken(tensor.detach(), operands), tensor, self._move(tensor))

        return tree_map_only(torch.Tensor, moved, made)


def _is_dense_float(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout is torch.strided


def _is_taken(tensor: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return where `tensor` is 0, or an element of an operand, up to the sign."""
    sizes = tensor.abs()
    if (count := tensor.numel() + sum(operand.numel() for operand in operands)) <= LARGE:
        bits = (ROOM * count).bit_length()
        seen = torch.zeros(1 << bits, dtype=torch.bool, device=tensor.device)
        seen[0] = True
        for operand in operands:
            seen[_place(operand.abs().to(tensor.device), bits)] = True
        return seen[_place(sizes, bits)]
    found = sizes == 0
    for operand in operands:
        if operand.shape == tensor.shape and operand.device == tensor.device:
            found |= sizes == operand.abs()
    return found


def _place(sizes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the place of each number in a table of 2^bits: the first bits of a product (Knuth, volume 3, 6.4); 0 has the first.

    Equal numbers have one place. Few others share it, and where they do, an element stays that could have been moved.
    """
    factor = int(MIXER) - (1 << 64)  # the same bits, with a sign
    return (sizes.double().view(torch.int64) * factor >> (64 - bits)) & ((1 << bits) - 1)


def by_a_unit(seed: int) -> Move:
    """Return a move by up to a unit in the last place of the tensor's type; whole numbers that it holds stay."""
    generators: dict[torch.device, torch.Generator] = {}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        unit, device = torch.finfo(tensor.dtype).eps, tensor.device
        if device not in generators:
            generators[device] = torch.Generator(device).manual_seed(seed)
        noise = torch.rand(tensor.shape, generator=generators[device], dtype=torch.float32, device=device)
        value = tensor.detach().double()
        is_count = (value == value.round()) & (value.abs() <= 1 / unit)
        other = (value * (1 + unit * (2 * noise.double() - 1))).to(tensor.dtype)
        return torch.where(is_count | ~other.isfinite(), tensor, other)

    return move
