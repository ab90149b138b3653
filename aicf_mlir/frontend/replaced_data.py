"""`tensor.data = value` in a step: a copy, as long as it behaves like memory that both share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.batched import unbatched
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.frontend.types import describe
from aicf_mlir.ir.locations import SourceLocation


def memory_of(tensor: torch.Tensor) -> object:
    """Return a key that is equal for two dense tensors that are views of the same memory."""
    if tensor.layout is not torch.strided:  # it has no block of memory, and is refused where it is read
        return id(tensor)
    storage: Any = unbatched(tensor).untyped_storage()
    return storage._cdata


def is_same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors are the same elements of the same memory."""
    return memory_of(one) == memory_of(other) and (
        (one.dtype, one.shape, one.stride(), one.storage_offset())
        == (other.dtype, other.shape, other.stride(), other.storage_offset())
    )


class ReplacedData:
    """The tensors that have got the memory of others."""

    def __init__(self, given: Sequence[torch.Tensor]):
        """Take `given`: the tensors that the next call finds again."""
        self._given = {memory_of(tensor) for tensor in given}
        self._views: list[torch.Tensor] = []
        """What has been made over the memory of the given tensors."""
        self._old: set[int] = set()
        """The ids of those over memory that a tensor has given up."""
        self._pairs: list[tuple[torch.Tensor, torch.Tensor, int, int]] = []
        """Each tensor with the one whose memory it has, and the versions of both then."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors that have got another memory."""
        return [tensor for tensor, *_ in self._pairs]

    def is_given(self, tensor: torch.Tensor) -> bool:
        """True if the next call finds the tensor again."""
        return memory_of(tensor) in self._given

    def note(self, made: Iterable[torch.Tensor]) -> None:
        """Note which of these results are views of the given tensors: they keep the old memory of one that gets another."""
        self._views += [tensor for tensor in made if memory_of(tensor) in self._given]

    def expect_like(self, tensor: torch.Tensor, value: torch.Tensor, location: SourceLocation | None) -> None:
        """Raise TraceError if `tensor.data = value` is more than a new value of `tensor`."""
        how = f"sets .data{quoted(location)}"
        if (value.shape, value.dtype, value.device) != (tensor.shape, tensor.dtype, tensor.device):
            raise trace_error(
                f"the step {how} to {describe(value)}, where there was {describe(tensor)}; a compiled step keeps shape,"
                " dtype and device",
                location,
            )
        if memory_of(value) in self._given:
            raise trace_error(
                f"the step {how} to memory that another tensor has, and both would be one from then on; write"
                " .data.copy_(…), or .data = ….clone()",
                location,
            )

    def add(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Note that `tensor` has got the memory of `value`, by a copy."""
        self._pairs.append((tensor, value, tensor._version, value._version))
        of_tensor = memory_of(tensor)
        self._old |= {id(view) for view in self._views if view is not tensor and memory_of(view) == of_tensor}

    def instead(self, value: object) -> object:
        """Return for a tensor the one that has got its memory: where Python keeps it, it has the later values of that one."""
        return next((tensor for tensor, given, *_ in self._pairs if given is value), value)

    def expect_apart(self, used: Iterable[torch.Tensor], location: SourceLocation | None) -> None:
        """Raise TraceError if one of these tensors would differ with shared memory instead of copies."""
        if not self._pairs:
            return
        used = list(used)
        if any(id(tensor) in self._old for tensor in used):
            location = location or source.here()
            raise trace_error(
                f"the step uses a view of a tensor that has got another memory since, by .data = …{quoted(location)}; write"
                " .data.copy_(…), or take a clone() before",
                location,
            )
        memories = {memory_of(tensor) for tensor in used}
        for tensor, value, version, of_value in self._pairs:
            stale = [tensor] if value._version != of_value else []
            stale += [value] if tensor._version != version else []
            if any(memory_of(each) in memories for each in stale):
                location = location or source.here()
                raise trace_error(
                    f"the step uses a tensor that shares its memory with another by .data = …, and one of them has changed"
                    f" since{quoted(location)}; write .data.copy_(…), or .data = ….clone()",
                    location,
                )
