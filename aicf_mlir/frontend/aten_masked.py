"""Values that are put under a mask: one for all of its places, or the rows of a tensor in their order."""

from __future__ import annotations

import math
from typing import Any

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_indices import MASK, taken, value_of
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.ir.tensor_op import shape_of


def put_under_mask(call: Call, x: SSAValue, given: list[Any]) -> SSAValue:
    """Put values under one mask of adjacent dimensions of x: the same for each place under the mask, or one row for each."""
    value, mask = call.of(call["values"], call.expected.dtype), value_of(call, given[0])
    (front, *_), under = (
        (place for place, each in enumerate(call["indices"]) if each is not None),
        shape_of(mask),
    )
    behind = len(shape_of(x)) - front - len(under)
    sizes = [*[1] * (front + 1 + behind - len(shape_of(value))), *shape_of(value)]
    if len(given) > 1 or len(sizes) > front + 1 + behind:
        raise Forbidden(MASK)
    mask = call.emit.cast(mask, torch.bool)
    if (count := sizes[front]) != 1:
        rows = call.emit.reshape(value, sizes)
        wide = [*shape_of(x)[:front], count, *shape_of(x)[front + len(under) :]]
        value = in_order(call, call.emit.broadcast(rows, wide), mask, front, all_of_them=True)
    else:
        value = call.emit.reshape(value, [*sizes[:front], *[1] * len(under), *sizes[front + 1 :]])
        value = (
            call.emit.broadcast(value, shape_of(x)) if math.prod(sizes) > 1 else call.emit.reshape(value, ())
        )
    mask = call.emit.reshape(mask, (*[1] * front, *under, *[1] * behind))
    if call["accumulate"]:
        if call.expected.dtype is torch.bool:
            raise Refused("a sum of booleans")
        value = call.emit.insert(CLASSES["add"](x, value))
    return call.emit.insert(CLASSES["where"](mask, value, x))


def masked_scatter(call: Call) -> SSAValue:
    """Put the first elements of a tensor, in their order, to the places under a mask."""
    x, source = call.value("self"), call.of(call["source"], call.expected.dtype)
    mask = call.emit.cast(call.of(call["mask"], torch.bool), torch.bool)
    x, mask = (call.emit.broadcast(each, call.shape) for each in (x, mask))
    source = call.emit.reshape(source, (math.prod(shape_of(source)),))
    return call.emit.insert(CLASSES["where"](mask, in_order(call, source, mask, 0, all_of_them=False), x))


def in_order(call: Call, rows: SSAValue, mask: SSAValue, dim: int, all_of_them: bool) -> SSAValue:
    """Return `rows` with the dimensions of the mask in place of `dim`: at each place under the mask the next row, at others any.

    A step updates nothing if there are fewer rows than places, or for `all_of_them` if there are more.
    """
    places, count = math.prod(shape_of(mask)), shape_of(rows)[dim]
    result = (*shape_of(rows)[:dim], *shape_of(mask), *shape_of(rows)[dim + 1 :])
    under = call.emit.cast(call.emit.reshape(mask, (places,)), torch.int64)
    total = call.emit.insert(nn.SumOp(under, [0], False))
    number = call.emit.constant(count, torch.int64)
    holds = call.emit.insert(CLASSES["eq" if all_of_them else "le"](total, number))
    call.emit.check_value(holds, "condition", f"{count} values for the places under a mask")
    if not count or not places:
        return call.emit.constant(0, call.expected.dtype, result)
    rank = call.emit.insert(
        CLASSES["sub"](call.emit.insert(nn.running_sum(under, 0)), call.of(1, torch.int64))
    )
    rank = call.emit.insert(CLASSES["maximum"](rank, call.emit.constant(0, torch.int64)))
    rank = call.emit.insert(CLASSES["minimum"](rank, call.emit.constant(count - 1, torch.int64)))
    return call.emit.reshape(taken(call, rows, rank, dim), result)
