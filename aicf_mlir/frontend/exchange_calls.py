"""The calls of torch.distributed by which code of the user exchanges, and what they are in a step.

Those of `torch.distributed` write in place, and record no gradient. Those of `torch.distributed.nn` and the functional
collectives have gradients: of what a rank gives it is the sum of those that all ranks have for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd import Function
from torch.distributed.nn import functional

from aicf_mlir.frontend.exchanges import (
    Sizes,
    as_rows,
    every,
    place,
    reduced,
    rows,
    stacked,
    values_of,
)

Tensor = torch.Tensor
Tensors = Sequence[torch.Tensor]
Exchange = Callable[..., Any]
FUNCTIONAL: Any = functional
SUM = dist.ReduceOp.SUM


class Done:
    """What a call with `async_op=True` returns; a step waits for what it reads."""

    def wait(self, timeout: object = None) -> bool:
        """Return True."""
        del timeout
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    is_success = is_completed


def put(into: Tensors, values: Tensors, async_op: bool) -> Done | None:
    """Write the values in place; return what torch does."""
    with torch.no_grad():
        for each, value in zip(into, values, strict=True):
            each.copy_(value.reshape(each.shape))
    return Done() if async_op else None


class Unrecorded(Function):
    """Another value in the place of a tensor, whose gradient it takes: autograd has not recorded the change."""

    __module__ = "exchanges"  # to the trace it is code of the user, whose backward it follows

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, value: Tensor) -> Tensor:
        """Return the value."""
        del ctx, tensor
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient."""
        del ctx
        return gradients[0], None


def put_over(tensor: Tensor, value: Tensor, async_op: bool) -> Done | None:
    """Write a value over the tensor of which it is made; its gradient stays what it was, as with torch."""
    if torch.is_grad_enabled() and tensor.requires_grad:
        unrecorded: Any = Unrecorded
        tensor.copy_(unrecorded.apply(tensor, value))
        return Done() if async_op else None
    return put([tensor], [value], async_op)


def all_reduce(tensor: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False) -> Done | None:
    """Act as torch does."""
    return put_over(tensor, reduced(every(tensor.detach(), group), op), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Done | None:
    """Act as torch does; what other ranks than `dst` then have is undefined there, and here what `dst` has."""
    del dst, group_dst
    return all_reduce(tensor, op, group, async_op)


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Done | None:
    """Act as torch does."""
    return put_over(tensor, every(tensor.detach(), group)[place(group, src, group_src)], async_op)


def all_gather(
    tensor_list: Tensors, tensor: Tensor, group: Any = None, async_op: bool = False
) -> Done | None:
    """Act as torch does."""
    return put(tensor_list, every(values_of(tensor, tensor_list), group).unbind(0), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Done | None:
    """Act as torch does."""
    return put([output_tensor], [every(values_of(input_tensor, [output_tensor]), group)], async_op)


def reduce_scatter(
    output: Tensor, input_list: Tensors, op: Any = SUM, group: Any = None, async_op: bool = False
) -> Done | None:
    """Act as torch does."""
    given = stacked(input_list, output)
    return put([output], [reduced(rows(values_of(given, [output]), group), op)], async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = SUM, group: Any = None, async_op: bool = False
) -> Done | None:
    """Act as torch does."""
    given = as_rows(values_of(input, [output]), group)
    return put([output], [reduced(rows(given, group), op)], async_op)


def all_to_all(
    output_tensor_list: Tensors, input_tensor_list: Tensors, group: Any = None, async_op: bool = False
) -> Done | None:
    """Act as torch does, with parts of one size."""
    given = values_of(stacked(input_tensor_list, *output_tensor_list), output_tensor_list)
    return put(output_tensor_list, rows(given, group).unbind(0), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sizes = None,
    input_split_sizes: Sizes = None,
    group: Any = None,
    async_op: bool = False,
) -> Done | None:
    """Act as torch does, with parts of one size."""
    given = as_rows(values_of(input, [output]), group, output_split_sizes, input_split_sizes)
    return put([output], [rows(given, group)], async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: object = None) -> Done | None:
    """Do nothing: the collectives of a step have one order on all ranks."""
    del group, device_ids
    return Done() if async_op else None


def batch_isend_irecv(p2p_op_list: Sequence[Any]) -> list[Done]:
    """Act as torch does, with tensors of one shape: what goes to a rank first, to all of them, is one exchange."""
    sends, receives = ([each for each in p2p_op_list if each.op is kind] for kind in (dist.isend, dist.irecv))
    group, like = p2p_op_list[0].group, p2p_op_list[0].tensor
    ranks = range(dist.get_world_size(group))
    given, into = (
        {rank: [each.tensor for each in ops if place(group, each.peer) == rank] for rank in ranks}
        for ops in (sends, receives)
    )
    stacked([each.tensor for each in p2p_op_list])
    values_of(like, [each.tensor for each in receives])
    for turn in range(max(map(len, (*given.values(), *into.values())))):
        there = [given[rank][turn] if turn < len(given[rank]) else torch.zeros_like(like) for rank in ranks]
        come = rows(torch.stack(there).detach(), group)
        here = [rank for rank in ranks if turn < len(into[rank])]
        put([into[rank][turn] for rank in here], [come[rank] for rank in here], False)
    return [Done() for _ in p2p_op_list]


IN_PLACE: Mapping[str, Exchange] = {
    "all_reduce": all_reduce,
    "reduce": reduce,
    "broadcast": broadcast,
    "all_gather": all_gather,
    "all_gather_into_tensor": all_gather_into_tensor,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "all_to_all": all_to_all,
    "all_to_all_single": all_to_all_single,
    "barrier": barrier,
    "all_gather_single": all_gather_into_tensor,
    "reduce_scatter_single": reduce_scatter_tensor,
}
"""By names of `torch.distributed`; the last two are of torch 2.13."""


def reduced_everywhere(x: Tensor, op: Any, group: Any) -> Tensor:
    """Return what `op` makes of x of every rank."""
    return reduced(every(x, group), op)


def gathered_along(x: Tensor, count: int, group: Any) -> Tensor:
    """Return x of every rank, one after the other along the first dimension."""
    return every(x, group).reshape(count * x.shape[0], *x.shape[1:]) if x.dim() else every(x, group)


def scattered_along(x: Tensor, op: Any, count: int, group: Any) -> Tensor:
    """Return what `op` makes of the part of every rank that is for this one."""
    return reduced(rows(x.reshape(count, x.shape[0] // count, *x.shape[1:]), group), op)


def of_one(x: Tensor, src: int, group: Any) -> Tensor:
    """Return x of one rank of the group."""
    return every(x, group)[src]


def exchanged_along(x: Tensor, to: Sizes, of: Sizes, group: Any) -> Tensor:
    """Return the part of every rank that is for this one."""
    return rows(as_rows(x, group, to, of), group).reshape(x.shape)


def there(x: Tensor) -> Tensor:
    """Return x."""
    return x


FUNCTIONAL_OPS: Mapping[str, Exchange] = {
    "all_reduce": reduced_everywhere,
    "all_gather_into_tensor": gathered_along,
    "reduce_scatter_tensor": scattered_along,
    "broadcast": of_one,
    "all_to_all_single": exchanged_along,
    "wait_tensor": there,
}
"""By names of the ops that functional collectives call."""

OPS: Mapping[Any, Exchange] = {
    getattr(package, name): function
    for package in (torch.ops._c10d_functional, torch.ops._c10d_functional_autograd)
    for name, function in FUNCTIONAL_OPS.items()
    if hasattr(package, name)
}
"""What takes the place of an op."""


def apply_all_reduce(op: Any, group: Any, x: Tensor) -> Tensor:
    """Act as the function of autograd, as those below."""
    return reduced(every(x, group), op)


def apply_all_gather(group: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Act as torch does."""
    return every(x, group).unbind(0)


def apply_all_gather_base(output: Tensor, x: Tensor, group: Any) -> Tensor:
    """Act as torch does."""
    found = every(x, group).reshape(output.shape)
    put([output], [found.detach()], False)
    return found


def apply_broadcast(src: int, group: Any, x: Tensor) -> Tensor:
    """Act as torch does."""
    return every(x, group)[place(group, src)]


def apply_reduce_scatter(op: Any, group: Any, output: Tensor, *x: Tensor) -> Tensor:
    """Act as torch does."""
    return reduced(rows(stacked(x, output), group), op)


def apply_all_to_all(group: Any, outputs: Tensors, *x: Tensor) -> tuple[Tensor, ...]:
    """Act as torch does, with parts of one size."""
    return rows(stacked(x, *outputs), group).unbind(0)


def apply_all_to_all_single(group: Any, output: Tensor, to: Sizes, of: Sizes, x: Tensor) -> Tensor:
    """Act as torch does, with parts of one size."""
    return exchanged_along(x, to, of, group).reshape(output.shape)


APPLIED: Mapping[Any, Exchange] = {
    FUNCTIONAL._AllReduce: apply_all_reduce,
    FUNCTIONAL._AllGather: apply_all_gather,
    FUNCTIONAL._AllGatherBase: apply_all_gather_base,
    FUNCTIONAL._Broadcast: apply_broadcast,
    FUNCTIONAL._Reduce_Scatter: apply_reduce_scatter,
    FUNCTIONAL._AlltoAll: apply_all_to_all,
    FUNCTIONAL._AlltoAllSingle: apply_all_to_all_single,
}
"""What takes the place of a function of autograd, which `torch.distributed.nn.functional` applies."""
