"""Rows for what a forward does to its buffers: running averages, counters, copies."""

from __future__ import annotations

from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.call import Call


def copied(call: Call) -> SSAValue:
    """`src`, cast and repeated to be like `self`, whose values do not matter."""
    return call.emit.broadcast(call.operand("src", call.expected.dtype), call.shape)


def lerp(call: Call) -> SSAValue:
    """Between `self` and `end`, from the nearer of the two on, as torch computes it."""
    weight, wide = call["weight"], call.wide_dtype
    start, end = call.operand("self", wide), call.operand("end", wide)
    near = abs(weight) < 0.5
    factor = call.emit.constant(weight if near else 1 - weight, wide)
    part = call.emit.insert(nn.MulOp(call.emit.insert(nn.SubOp(end, start)), factor))
    result = nn.AddOp(start, part) if near else nn.SubOp(end, part)
    return call.emit.cast(call.emit.insert(result), call.dtype)
