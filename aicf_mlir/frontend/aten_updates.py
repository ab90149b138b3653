"""Rows for what a forward does to its buffers: running averages, counters, copies."""

from __future__ import annotations

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.frontend.types import ELEMENT_TYPES
from aicf_mlir.ir.tensor_op import element_type


def integers(call: Call, op: type[nn.PointwiseOp], swap: bool) -> SSAValue:
    """Sums and differences of integers of one type, and of whole numbers of the model's text."""
    dtype: torch.dtype = call.expected.dtype
    kind = str(dtype).removeprefix("torch.")
    if op not in (nn.AddOp, nn.SubOp) or dtype not in ELEMENT_TYPES:
        raise Refused(
            f"arithmetic on {kind}, which there is no kernel for; sums and differences of int64 and int32 only"
        )

    def operand(name: str) -> SSAValue:
        given = call[name]
        if not isinstance(given, int):
            value = call.value(name)
            if element_type(value) != ELEMENT_TYPES[dtype]:
                raise Refused(f"a sum of {kind} and another type; use one type of integer")
            return value
        number = given * (call.arguments.get("alpha", 1) if name == "other" else 1)
        if abs(number) > torch.iinfo(dtype).max >> 11:
            raise Refused(f"the number {number} in arithmetic on {kind}, which is done in float64")
        return call.emit.constant(number, dtype)

    if call.arguments.get("alpha", 1) != 1 and not isinstance(call["other"], int):
        raise Refused(f"alpha={call['alpha']} between tensors of {kind}")
    lhs, rhs = ("other", "self") if swap else ("self", "other")
    return call.emit.insert(op(operand(lhs), operand(rhs)))


def copied(call: Call) -> SSAValue:
    """`src`, cast and repeated to be like `self`, whose values do not matter."""
    if call.expected.dtype.is_floating_point:
        return call.emit.broadcast(call.operand("src", call.dtype), call.shape)
    value = call.value("src")
    if element_type(value) != ELEMENT_TYPES.get(call.expected.dtype):
        raise Refused("a conversion to integers; copy a tensor of the same type")
    return call.emit.broadcast(value, call.shape)


def batch_norm(call: Call) -> SSAValue:
    """In training mode; in evaluation mode torch writes it as arithmetic."""
    raise Forbidden("batch normalisation in training mode; call model.eval(), which keeps its statistics")


def lerp(call: Call) -> SSAValue:
    """Between `self` and `end`, from the nearer of the two on, as torch computes it."""
    weight, wide = call["weight"], call.wide_dtype
    start, end = call.operand("self", wide), call.operand("end", wide)
    near = abs(weight) < 0.5
    factor = call.emit.constant(weight if near else 1 - weight, wide)
    part = call.emit.insert(nn.MulOp(call.emit.insert(nn.SubOp(end, start)), factor))
    result = nn.AddOp(start, part) if near else nn.SubOp(end, part)
    return call.emit.cast(call.emit.insert(result), call.dtype)
