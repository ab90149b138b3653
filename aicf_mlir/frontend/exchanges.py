"""What code of the user exchanges with other processes by itself, as tensors of all ranks of the step.

Two ops exchange, and everything else is tensor code: a gather, and one by which each rank gives every other a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from aicf_mlir.frontend import source
from aicf_mlir.frontend.across_ranks import GATHER, ROWS, group_of
from aicf_mlir.frontend.source import quoted, trace_error

Tensor = torch.Tensor
Sizes = Sequence[int] | None
TORCH: Any = dist
C10D: Any = distributed_c10d

TAKES = ("the step exchanges values with", "")
"""What a call of torch.distributed does."""

OTHER_SIZES = "with parts of different sizes, which a step does not follow; pad them to one size"
IN_PLACE = (
    "and writes to a tensor with a gradient, which autograd does not record; use torch.distributed.nn.functional, or detach() the"
    " tensor"
)
REDUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "max": lambda x: x.amax(0),
    "min": lambda x: x.amin(0),
    "product": lambda x: x.prod(0, dtype=x.dtype),
    "band": lambda x: reduce(torch.bitwise_and, x.unbind(0)),
    "bor": lambda x: reduce(torch.bitwise_or, x.unbind(0)),
    "bxor": lambda x: reduce(torch.bitwise_xor, x.unbind(0)),
}
"""What becomes of the values of all ranks, by the name of a `ReduceOp`; sums and means have gradients too."""


def refused(why: str) -> Exception:
    """Return the error for an exchange at this line of the user's code."""
    location = source.here()
    return trace_error(f"the step exchanges with other processes by itself{quoted(location)} {why}", location)


def every(x: Tensor, group: Any) -> Tensor:
    """Return x of every rank, in their order: a first dimension more."""
    if x.is_complex():
        return torch.view_as_complex(every(torch.view_as_real(x), group))
    found = group_of(known(group), *TAKES)
    return x.unsqueeze(0) if found is None else GATHER(x, *found)


def rows(x: Tensor, group: Any) -> Tensor:
    """Return the row that every rank has for this one, in their order."""
    if x.is_complex():
        return torch.view_as_complex(rows(torch.view_as_real(x), group))
    found = group_of(known(group), *TAKES)
    return x.clone() if found is None else ROWS(x, *found)


def known(group: Any) -> Any:
    """Return a group, of which a functional collective may have the name. Raises torch's ValueError where there is none yet."""
    found = C10D._resolve_process_group(group) if isinstance(group, str) else group
    dist.get_world_size(found)
    return found


def reduced(of_ranks: Tensor, op: Any) -> Tensor:
    """Return what a `ReduceOp`, or its name, makes of the values of all ranks."""
    name = str(op).rsplit(".", 1)[-1].lower()
    if name == "sum":
        return of_ranks.sum(0, dtype=of_ranks.dtype)
    if name == "avg":
        return of_ranks.sum(0) / len(of_ranks)
    if name not in REDUCTIONS:
        raise refused(f"with {op}, which a step does not follow; use one of SUM, AVG, MIN, MAX and PRODUCT")
    if of_ranks.requires_grad:
        raise refused(f"with {op}, of which torch has no gradient; gather the values, and reduce them")
    return REDUCTIONS[name](of_ranks)


def values_of(x: Tensor, into: Sequence[Tensor]) -> Tensor:
    """Return the values of x, which an exchange writes to tensors in place. Raises TraceError if one of these has a gradient."""
    if torch.is_grad_enabled() and any(each.requires_grad for each in into):
        raise refused(IN_PLACE)
    return x.detach()


def place(group: Any, rank: int | None, rank_in_group: int | None = None) -> int:
    """Return the number of a rank in its group, of which torch is given one of two."""
    if rank_in_group is not None:
        return rank_in_group
    return dist.get_group_rank(group or TORCH.group.WORLD, 0 if rank is None else rank)


def as_rows(x: Tensor, group: Any, *sizes: Sizes) -> Tensor:
    """Return x as a row for each rank. Raises TraceError for parts of different sizes."""
    count = dist.get_world_size(known(group))
    if any(len(set(each)) > 1 for each in sizes if each) or x.numel() % count:
        raise refused(OTHER_SIZES)
    return x.reshape(count, x.numel() // count)


def stacked(parts: Sequence[Tensor], *others: Tensor) -> Tensor:
    """Return the parts for all ranks as one. Raises TraceError if one of them, or of the others, has another shape."""
    if len({each.shape for each in (*parts, *others)}) > 1:
        raise refused(OTHER_SIZES)
    return torch.stack(list(parts))
