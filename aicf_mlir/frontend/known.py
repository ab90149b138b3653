"""Knowledge about one tensor of a trace, and the result of a comparison that follows from the range of its values."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import (
    _disable_current_modes,  # pyright: ignore[reportPrivateUsage]
)

from aicf_mlir.frontend.values import is_a, members

UNIFORM = (torch.ops.aten.rand.default, torch.ops.aten.rand_like.default)
"""Ops that draw from [0, 1)."""

ORDERED = frozenset(
    [
        "lt",
        "le",
        "gt",
        "ge",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ]
)
"""Comparisons by name: a result that is the same at both ends of a range holds inside it."""

DRAWN = "random numbers"
MADE = "a tensor of the step"


@dataclass(eq=False)
class KnownMemory:
    """The facts that all views of one block of memory share."""

    sources: dict[int, torch.Tensor]
    """The user's tensors from which its values follow, by id."""
    name: str
    """The user's name of the memory."""
    version: int
    """The version of the trace's tensors after the last function that was also computed on real ones."""
    why: str = ""
    """The reason why its values are no longer known."""


@dataclass(eq=False)
class Known:
    """The real tensor that a traced one stands for; without `memory` it is unknown for the reason `why`."""

    value: torch.Tensor | None
    memory: KnownMemory | None
    why: str = ""
    uniform: int | None = None
    """The version of an unknown tensor drawn from [0, 1)."""


def any_like(tensor: torch.Tensor) -> Known:
    """Return a tensor of the same shape, strides, dtype and device, with values that are never read."""
    with outside():
        size, strides = tuple(tensor.shape), tensor.stride()
        value = torch.empty_strided(size, strides, dtype=tensor.dtype, device=tensor.device)
    return Known(value, KnownMemory({}, MADE, tensor._version))


def end_like(tensor: torch.Tensor, largest: bool) -> Known:
    """Return a tensor of zeros, or of the largest number below 1."""
    with outside():
        end = 1 - torch.finfo(tensor.dtype).eps / 2 if largest else 0.0
        value = torch.full(tensor.shape, end, dtype=tensor.dtype, device=tensor.device)
    return Known(value, KnownMemory({}, MADE, tensor._version))


def at_the_ends(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], operands: list[Known]
) -> list[Known]:
    """Return the operands of a comparison, with zeros for numbers drawn from [0, 1), if its result is the same for the
    largest of them.

    So a layer that is skipped with probability 0 never is, for any number it draws.
    """
    tensors = real_tensors((args, kwargs))
    uniform = [each.uniform == tensor._version for each, tensor in zip(operands, tensors, strict=True)]
    if not any(uniform) or any(
        each.value is None for each, is_drawn in zip(operands, uniform, strict=True) if not is_drawn
    ):
        return operands
    ends: list[list[Known]] = []
    answers: list[torch.Tensor] = []
    for largest in (True, False):
        ends.append(
            [
                end_like(tensor, largest) if is_drawn else each
                for each, tensor, is_drawn in zip(operands, tensors, uniform, strict=True)
            ]
        )
        values = iter([each.value for each in ends[-1]])
        real_args, real_kwargs = mapped(lambda _, values=values: next(values), (tuple(args), dict(kwargs)))
        with outside():
            answers.append(func(*real_args, **real_kwargs))
    most, least = answers
    return ends[-1] if least.equal(most) else operands


@contextmanager
def outside() -> Generator[None]:
    """Let torch compute on real tensors in the middle of a trace."""
    with (
        warnings.catch_warnings(action="ignore"),
        torch._C.DisableTorchFunction(),  # pyright: ignore[reportPrivateUsage]
        _disable_current_modes(),
        torch.no_grad(),
    ):
        yield


def real_tensors(tree: object) -> list[torch.Tensor]:
    """Every tensor in nested tuples, lists, dictionaries and slices, in order."""
    if is_a(tree, torch.Tensor):
        return [tree]
    if is_a(tree, slice):
        tree = bounds(tree)
    return [tensor for _, each in members(tree) or () for tensor in real_tensors(each)]


def mapped(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return the same tree with another value for each tensor, in the order of `real_tensors`."""
    if is_a(tree, torch.Tensor):
        return function(tree)
    if not real_tensors(tree):
        return tree
    if is_a(tree, slice):
        return slice(*(mapped(function, each) for each in bounds(tree)))
    found = {key: mapped(function, value) for key, value in members(tree) or ()}
    if is_a(tree, Mapping):
        return found
    return list(found.values()) if is_a(tree, list) else tuple(found.values())


def bounds(part: Any) -> tuple[Any, Any, Any]:
    """Return the bounds of a slice."""
    return part.start, part.stop, part.step
