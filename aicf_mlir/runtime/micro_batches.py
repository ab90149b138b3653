"""A step of several micro-batches: its arguments as one batch with the entries "x.0", "x.1", …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend.structure import Batch, named, several
from aicf_mlir.frontend.values import is_a, members

StepBatch = Batch | Sequence[Batch]
"""The argument of one step: a batch, or a sequence of micro-batches if it accumulates."""


def parts_of(batch: object, count: int) -> Sequence[object]:
    """Return the micro-batches of a step. Raises BindError unless `batch` is a list or tuple of `count` of them."""
    wanted = f"a step with accumulate={count} takes a list or tuple of {count} batches"
    if not is_a(batch, (list, tuple)):
        raise BindError(f"{wanted}, got {type(batch).__name__}")
    parts = [part for _, part in members(batch) or ()]
    if len(parts) != count:
        raise BindError(f"{wanted}, got {len(parts)}; leave out what is left at the end of an epoch")
    return parts


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of all micro-batches by name."""
    return {f"{name}.{number}": entry for number, part in enumerate(parts) for name, entry in part.items()}


def parted(tensors: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return the entries of each micro-batch: the inverse of `joined`."""
    names = [name.removesuffix(".0") for name in tensors if name.endswith(".0")]
    return [{name: tensors[f"{name}.{number}"] for name in names} for number in range(count)]


def shapes_of_parts(example: Any) -> Any:
    """Return the examples of a step that accumulates, each shape once: micro-batches, or sequences of them as steps
    take them.
    """
    if example is None:
        return None
    if is_a(example, torch.Tensor):
        raise BindError(
            "accumulate= takes lists of batches, and a list of tensors is one batch: make the batch a tuple, (x,)"
        )
    found: list[Any] = []
    for each in several(example):
        for part in several(each) if is_a(each, (list, tuple)) else [each]:
            if not any(_alike(part, other) for other in found):
                found.append(part)
    return found


def _alike(one: Any, other: Any) -> bool:
    """True if two micro-batches have the same nesting, names, shapes and types."""
    return _described(one) == _described(other)


def _described(part: Any) -> Any:
    entries, _ = named(part)
    return {name: (e.shape, e.dtype) if is_a(e, torch.Tensor) else id(e) for name, e in entries.items()}


def each_step(given: Any, count: int | None) -> list[Any]:
    """Return the batches of several steps, each in the form a step takes: from one batch, or a sequence."""
    steps = several(given)
    if count is None or not steps:
        return list(steps)
    of_lists = all(members(part) is not None and several(part) != [part] for part in steps)
    return list(steps) if of_lists else [given]
