"""Steps that compute with the layout of their batch in memory.

A plan copies each batch to dense memory, so a step takes batches of any strides. Code that reads strides sees those of a
dense tensor: it is called with batches of other strides too, and if it then computes something else, each batch must be dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from aicf_mlir.frontend.calls import Calls, first_difference
from aicf_mlir.frontend.example import TensorSpec, zeros
from aicf_mlir.frontend.source import quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

READS = frozenset({"stride", "storage_offset", "dim_order", "as_strided"})
"""Functions, by name, whose result depends on strides. Not `is_contiguous`, which decides between forms of one result."""

Batch = Callable[[Mapping[str, TensorSpec]], Mapping[str, torch.Tensor]]
"""A function that makes a batch."""


def dense(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Return a batch as a plan has it."""
    return zeros(specs)


def shifted(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Return a dense batch whose memory begins with another element."""
    return {name: _memory(spec, 1)[1:].view(spec.shape) for name, spec in specs.items()}


def with_gaps(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Return a batch of every second element of its memory: every view of a dense one is a view of it too."""
    return {name: _with_gaps(spec, spec.shape) for name, spec in specs.items()}


def transposed(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """Return a batch whose last dimension is the outermost in memory."""
    return {
        name: _with_gaps(spec, spec.shape[::-1]).permute(*reversed(range(len(spec.shape))))
        for name, spec in specs.items()
    }


def _with_gaps(spec: TensorSpec, shape: Sequence[int]) -> torch.Tensor:
    return _memory(spec, math.prod(shape))[::2].view(tuple(shape))


def _memory(spec: TensorSpec, further: int) -> torch.Tensor:
    return torch.zeros(math.prod(spec.shape) + further, dtype=spec.dtype, device=spec.device)


def reads_layouts(calls: Calls) -> bool:
    """True if one of the calls reads strides."""
    return any(name in READS for name, _ in calls.made)


def needs_dense(call: Callable[[Batch, int | None], Calls | None], fallback: SourceLocation | None) -> str:
    """Return the reason why a step that reads strides needs dense batches; nothing if it computes the same for others.

    `call` returns the calls for a batch, or None if they raise, and finds the line of the one with a number. Raises
    TraceError if the step computes with the place of a batch in its memory.
    """
    expected = call(dense, None)
    for batch in shifted, with_gaps, transposed:
        call(batch, None)  # fake tensors remember results by strides, and call more functions at first
        other = call(batch, None)
        if other is None or expected is None:
            continue
        if (number := first_difference(expected.made, other.made)) is None:
            continue
        sought = call(batch, number)
        location = (sought and sought.location) or fallback
        name, _ = max(expected.made, other.made, key=len)[number]
        if batch is shifted:
            raise trace_error(
                f"the step computes with the storage_offset() of its batch: first {name}{quoted(location)}; a compiled step"
                " copies each batch, so leave that out",
                location,
            )
        return f"the step computes with strides, in {name} at {location}"
    return ""
