"""Tensors of a step that share memory with others: a compiled step gives each tensor memory of its own.

A tensor that the step binds moves to an arena. Any other tensor on its old memory would see no update, and would write
where the step does not read. Several parameters in one flat tensor, as cuDNN lays out the weights of an LSTM, are
accepted as long as only these parameters use it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch

from aicf_mlir.frontend.source import here, trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.types import describe


def refuse_shared(bound: Mapping[str, torch.Tensor], model: Iterable[torch.Tensor]) -> None:
    """Raise TraceError if two of the `bound` tensors overlap, or if an unknown tensor uses their memory.

    The known tensors are the bound ones and the model's parameters and buffers. None of `bound` is on the meta device.
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


def warn_of_aliases(moved: Mapping[str, torch.Tensor]) -> None:
    """Warn of whole parameters, about to be moved, whose memory is also used elsewhere: the other user keeps the old
    values.

    The aliasing may be intended, so it is no error. Parts of a larger tensor are refused.
    """
    names = [name for name, tensor in moved.items() if is_aliased(tensor)]
    if not names:
        return
    others = f" and {len(names) - 1} others" if len(names) > 1 else ""
    message = (
        f"something that was made from {names[0]!r}{others} before looks at the same memory, such as a kept state_dict(),"
        " .data, or a loss that keeps its graph: the compiled step moves the tensor, and what was made before sees no update;"
        " make it anew from the model, or clone() it"
    )
    location = here()
    if location is None:
        warnings.warn(message, stacklevel=2)
    else:
        warnings.warn_explicit(message, UserWarning, location.file, location.line)


def is_aliased(tensor: torch.Tensor) -> bool:
    """True if another tensor certainly uses the memory of one that has a storage of its own."""
    if tensor.is_meta or special(tensor) is not None:
        return False
    storage, (start, end) = tensor.untyped_storage(), memory(tensor)
    used = use_count(storage)
    return storage.nbytes() <= end - start and used is not None and used > 2  # the tensor, and `storage`


def use_count(storage: torch.UntypedStorage) -> int | None:
    """Return the number of tensors and storage objects that share a storage; None if torch does not report it."""
    count: Any = vars(torch._C).get("_storage_Use_Count")  # pyright: ignore[reportPrivateUsage]
    return None if count is None else count(key_of(storage))


def by_storage(tensors: Iterable[torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    """Tensors with ordinary memory, by their storage."""
    found: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if not tensor.is_meta and special(tensor) is None:
            found.setdefault(key_of(tensor.untyped_storage()), []).append(tensor)
    return found


def is_divided(tensor: torch.Tensor, known: Mapping[int, list[torch.Tensor]]) -> bool:
    """True if the known tensors in the storage of `tensor` are its only users, and none overlaps another."""
    storage = tensor.untyped_storage()
    parts = known[key_of(storage)]
    bases = sum(base_holders(part) == OWN_BASE for part in parts)  # bases that nothing else uses
    alone = use_count(storage) == len(parts) + bases + 1  # `storage` itself counts
    ranges = sorted(memory(part) for part in parts if part.numel())
    return alone and all(end <= start for (_, end), (start, _) in pairwise(ranges))


def references(tensor: torch.Tensor) -> int:
    """Return the number of holders of a tensor's storage object; `UNHELD` if the user has none."""
    return sys.getrefcount(tensor.untyped_storage())


def base_holders(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the numbers of torch and Python holders of the base of a view; `OWN_BASE` if only the tensor holds it."""
    base: Any = tensor._base
    return (
        None
        if base is None or not hasattr(base, "_use_count")
        else (base._use_count(), sys.getrefcount(base))
    )


OWN_BASE = base_holders(torch.zeros(2, device="cpu")[1:])
UNHELD = references(torch.zeros(1, device="cpu"))


def key_of(storage: torch.UntypedStorage) -> int:
    """Return the identity of the storage, as torch numbers them."""
    numbered: Any = storage
    return numbered._cdata


def memory(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor and the byte after its last."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in strides)
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()
