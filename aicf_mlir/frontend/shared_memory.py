"""Tensors of a step in memory that is not theirs alone: a compiled step gives each memory of its own.

What the step binds moves to an arena, and whoever else looks at its old memory would see no update, and would write where
the step does not look. Several parameters in one flat tensor, as cuDNN lays out the weights of an LSTM, are well as long
as nothing but these parameters looks at it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch

from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.types import describe


def refuse_shared(bound: Mapping[str, torch.Tensor], model: Iterable[torch.Tensor]) -> None:
    """
    Raise TraceError if two of the `bound` tensors overlap, or if something that is not known looks at their memory.

    Known are the bound tensors and those of the model, its parameters and buffers. None of `bound` is on the meta device.
    """
    in_order = sorted(bound.items(), key=lambda item: memory(item[1]))
    farthest = in_order[:1]
    for name, tensor in in_order[1:]:
        if memory(tensor)[0] < memory(farthest[0][1])[1]:
            raise trace_error(
                f"{farthest[0][0]!r} and {name!r} are two tensors over the same memory; to tie"
                " weights, use one Parameter in both places (a.weight = b.weight)"
            )
        if memory(tensor)[1] > memory(farthest[0][1])[1]:
            farthest = [(name, tensor)]
    known = {id(tensor): tensor for tensor in (*bound.values(), *model)}
    parts: dict[int, list[torch.Tensor]] | None = None
    for name, tensor in bound.items():
        start, end = memory(tensor)
        if tensor.untyped_storage().nbytes() <= end - start:
            continue
        parts = by_storage(known.values()) if parts is None else parts
        if references(tensor) > UNHELD or not is_divided(tensor, parts):
            raise trace_error(
                f"{name!r}, {describe(tensor)}, is a part of a larger tensor, whose changes the step would not see; use a"
                " clone() of it, pass it in the batch, or drop what else looks at that memory: other tensors, or a loss"
                " that keeps its graph"
            )


def by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    """Tensors with ordinary memory, by their storage."""
    found: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_meta and special(tensor) is None:
            found.setdefault(key_of(tensor.untyped_storage()), []).append(tensor)
    return found


def is_divided(tensor: torch.Tensor, known: Mapping[int, list[torch.Tensor]]) -> bool:
    """Whether the known tensors in the storage of `tensor` are all that looks at it, and none overlaps another."""
    count: Any = vars(torch._C).get("_storage_Use_Count")  # pyright: ignore[reportPrivateUsage]
    storage = tensor.untyped_storage()
    parts = known[key_of(storage)]
    alone = count is not None and count(key_of(storage)) == len(parts) + 1  # `storage` itself counts
    ranges = sorted(memory(part) for part in parts if part.numel())
    return alone and all(end <= start for (_, end), (start, _) in pairwise(ranges))


def references(tensor: torch.Tensor) -> int:
    """How many hold the storage object of a tensor; `UNHELD` where the user has none."""
    return sys.getrefcount(tensor.untyped_storage())


UNHELD = references(torch.zeros(1))


def key_of(storage: torch.UntypedStorage) -> int:
    """Which storage it is, as torch numbers them."""
    numbered: Any = storage
    return numbered._cdata


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor and the byte after its last."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in strides)
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
