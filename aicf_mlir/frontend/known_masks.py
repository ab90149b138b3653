"""What a mask of attention shows as far as the trace knows its values: the keys up to the query's own, all keys, or less.

A mask is a conjunction, or a sum, of parts: of a causal model with padding one is known and the other comes with the batch.
Known parts that `causal` says too are left out, so that kernels walk along half of the scores and read a smaller mask, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from math import inf
from typing import TypeAlias, cast

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.emitter import Emitter
from aicf_mlir.ir.expect import is_float

Part: TypeAlias = SSAValue | torch.Tensor

MOST_PARTS = 16
"""A mask of more is taken as a whole."""


@dataclass(frozen=True)
class Shown:
    """What a known mask shows of scores [.., L, S]."""

    mask: torch.Tensor
    """Its values, one for each dimension along which they repeat; bool if they are 0 and -infinity alone."""
    hides_later: bool
    """True if no query sees a later key."""
    shows_earlier: bool
    """True if each query sees all keys up to its own."""
    shows_later: bool
    """True if each query sees all later keys."""


def shown_by(mask: torch.Tensor, emit: Emitter, queries: int, keys: int) -> Shown:
    """Look at a mask once in a trace: layers share it, and what is left of it."""
    key = (id(mask), queries, keys)
    if key not in emit.masks:
        emit.masks[key] = mask, look(mask, queries, keys)
    return cast(Shown, emit.masks[key][1])


def look(mask: torch.Tensor, queries: int, keys: int) -> Shown:
    """What `mask` shows: a bool, or a summand of scores."""
    mask = mask.cpu()
    if mask.is_floating_point() and bool(((mask == 0) | (mask == -inf)).all()):
        mask = mask == 0
    mask = without_repeats(mask)
    if mask.dtype != torch.bool:
        return Shown(mask, False, False, False)
    earlier = torch.ones(queries, keys, dtype=torch.bool, device="cpu").tril()
    return Shown(
        mask,
        not bool((mask & ~earlier).any()),
        bool((mask | ~earlier).all()),
        bool((mask | earlier).all()),
    )


def without_repeats(mask: torch.Tensor) -> torch.Tensor:
    """The mask with one element in the place of a dimension along which all are the same."""
    for dim, size in enumerate(mask.shape):
        first = mask.narrow(dim, 0, min(size, 1))
        if size > 1 and torch.equal(first.expand_as(mask), mask):
            mask = first
    return mask.contiguous()


def simplified(
    mask: Part, emit: Emitter, materialize: Callable[[torch.Tensor], SSAValue], queries: int, keys: int
) -> tuple[SSAValue | None, bool]:
    """What is left of the mask of scores [.., queries, keys], and True if a query sees no later key besides."""
    parts = parts_of(mask, emit)
    looked = [
        shown_by(each, emit, queries, keys) if isinstance(each, torch.Tensor) else None for each in parts
    ]
    causal = any(each is not None and each.hides_later for each in looked)
    left: list[Part] = []
    for part, shown in zip(parts, looked, strict=True):
        if shown is None:
            left.append(part)
        elif not (shown.shows_earlier and (causal or shown.shows_later)):
            left.append(shown.mask)
    if len(left) > 1 and (len(left) == len(parts) or is_sum(mask)):
        left = [mask]
    values = [materialize(each) if isinstance(each, torch.Tensor) else each for each in left]
    if not values:
        return None, causal
    return reduce(lambda a, b: emit.insert(CLASSES["bitwise_and"](a, b)), values), causal


def is_sum(mask: Part) -> bool:
    """True for summands of scores."""
    return mask.is_floating_point() if isinstance(mask, torch.Tensor) else is_float(mask)


def parts_of(mask: Part, emit: Emitter) -> list[Part]:
    """The parts of a conjunction or of a sum; a tensor where the trace knows the values."""
    if isinstance(mask, torch.Tensor):
        return [mask]
    joins = CLASSES["add" if is_sum(mask) else "bitwise_and"]
    left, parts = [mask], list[Part]()
    while left:
        if len(left) + len(parts) > MOST_PARTS:
            return [mask]
        value = left.pop()
        op = value.owner
        if (tensor := emit.known.get(value)) is not None:
            parts.append(tensor)
        elif isinstance(op, nn.BroadcastToOp):
            left.append(op.x)
        elif isinstance(op, joins):
            left.extend(reversed(op.operands))
        else:
            parts.append(value)
    return parts
