"""The rows of `aten_table` for embeddings: rows of a table, and bags of them."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_indices import index_below, shape_of_index, taken, value_of
from aicf_mlir.frontend.call import Call, Value
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.ir.tensor_op import shape_of


def embedding(call: Call) -> SSAValue:
    """Rows of the weight; the row `padding_idx` is not trained."""
    if call["sparse"] or call["scale_grad_by_freq"]:
        name = "sparse" if call["sparse"] else "scale_grad_by_freq"
        raise Forbidden(f"an embedding with {name}=True; without it its gradient is a tensor like the weight")
    weight = call.value("weight")
    rows = index_below(call, call["indices"], shape_of(weight)[0])
    found = taken(call, weight, rows, 0)
    padding = int(call["padding_idx"])
    return found if padding < 0 else untrained(call, found, value_of(call, rows), padding)


def untrained(call: Call, found: SSAValue, rows: SSAValue, padding: int) -> SSAValue:
    """`found`, without a gradient where the index is `padding`."""
    is_padding = call.emit.insert(CLASSES["eq"](rows, call.emit.constant(padding, torch.int64)))
    is_padding = call.emit.reshape(is_padding, (*shape_of(rows), 1))
    kept = call.emit.insert(nn.DetachOp(found))
    return call.emit.insert(CLASSES["where"](is_padding, kept, found))


def embedding_bag(call: Call) -> Value:
    """Return bags of rows of the weight; a negative `padding_idx` counts from the last row."""
    padding = call.arguments.get("padding_idx")
    return bags_of_rows(call, None if padding is None else padding % shape_of(call.value("weight"))[0])


def inner_embedding_bag(call: Call) -> Value:
    """Return bags as `embedding_bag` asks for them: a negative `padding_idx` is none."""
    padding = int(call["padding_idx"])
    return bags_of_rows(call, None if padding < 0 else padding)


def bags_of_rows(call: Call, padding: int | None) -> Value:
    """Return rows of the weight in bags of one size, summed, averaged, or the largest of each column."""
    offsets, weights = call["offsets"], call.arguments.get("per_sample_weights")
    if call["sparse"] or call["scale_grad_by_freq"]:
        raise Forbidden("an embedding bag with sparse=True or scale_grad_by_freq=True")
    weight = call.value("weight")
    count = math.prod(shape_of_index(call["indices"]))
    bags = math.prod(shape_of_index(offsets)) - int(bool(call["include_last_offset"]))
    size = count // max(bags, 1)
    even = isinstance(offsets, torch.Tensor) and bool(size)
    if not even or not torch.equal(
        offsets[:bags].to(torch.int64), torch.arange(0, count, size, device="cpu")
    ):
        raise Forbidden(
            "an embedding bag whose bags differ in size or depend on data; give indices of [bags, size]"
        )
    rows = value_of(call, index_below(call, call["indices"], shape_of(weight)[0]))
    rows = call.emit.reshape(rows, (bags, size))
    found = call.emit.insert(nn.TakeOp(weight, rows, 0))
    if weights is not None:
        scale = call.emit.reshape(call.of(weights, call.result_dtype), (bags, size, 1))
        found = call.emit.insert(CLASSES["mul"](found, scale))
    if padding is not None:
        return without_padding(call, found, rows, padding), None, None, None
    if call["mode"] == 2:
        made = nn.MaxWithIndexOp(found, 1)
        call.emit.insert_all(made)
        return made.values, None, None, None
    reduced = nn.SumOp if call["mode"] == 0 else nn.MeanOp
    return call.emit.insert(reduced(found, [1])), None, None, None


def without_padding(call: Call, found: SSAValue, rows: SSAValue, padding: int) -> SSAValue:
    """Bags [bags, size, columns] reduced over their rows but those of the index `padding`; zeros where a bag has no other."""
    emit, (bags, size) = call.emit, shape_of(rows)
    zero, one, lowest = (call.of(number, call.result_dtype) for number in (0.0, 1.0, -math.inf))
    is_padding = emit.insert(CLASSES["eq"](rows, emit.constant(padding, torch.int64)))
    is_padding = emit.reshape(is_padding, (bags, size, 1))
    there = emit.insert(nn.SumOp(emit.insert(CLASSES["where"](is_padding, zero, one)), [1]))
    left_out = emit.insert(CLASSES["where"](is_padding, lowest if call["mode"] == 2 else zero, found))
    if call["mode"] == 2:
        made = nn.MaxWithIndexOp(left_out, 1)
        emit.insert_all(made)
        return emit.insert(CLASSES["where"](emit.insert(CLASSES["eq"](there, zero)), zero, made.values))
    total = emit.insert(nn.SumOp(left_out, [1]))
    if call["mode"] == 0:
        return total
    return emit.insert(CLASSES["div"](total, emit.insert(CLASSES["maximum"](there, one))))
