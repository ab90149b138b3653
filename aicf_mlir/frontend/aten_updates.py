"""Rows for a forward's writes to its buffers: running averages, counters, copies."""

from __future__ import annotations

from xdsl.ir import OpResult, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.call import AtenRule, Call, Value


def overwritten(rule: AtenRule) -> AtenRule:
    """Return `rule`, of whose result no element depends on `self`: that has a gradient of zeros, as torch says.

    A part of another value needs none: the rest of that is read where the part is written back. Nor does a parameter, which
    torch lets be written without a record alone.
    """

    def row(call: Call) -> Value:
        made, given = rule(call), call["self"]
        is_part = isinstance(given, OpResult) and isinstance(given.op, nn.ConstantOp | nn.SplitOp)
        is_computed = isinstance(given, OpResult) and not is_part
        if not is_computed or not call.is_forward or not call.needs_gradient("self"):
            return made
        return call.emit.depending(call.of(made, call.expected.dtype), call.value("self"))

    return row


def copied(call: Call) -> SSAValue:
    """Return `src`, cast and repeated to be like `self`, whose values do not matter."""
    return call.emit.broadcast(call.operand("src", call.expected.dtype), call.shape)


def lerp(call: Call) -> SSAValue:
    """Interpolate between `self` and `end`, from the nearer of the two on, as torch computes it."""
    weight, wide = call["weight"], call.wide_dtype
    start, end = call.operand("self", wide), call.operand("end", wide)
    if isinstance(weight, SSAValue):
        return call.emit.cast(_of_value(call, start, end, call.operand("weight", wide)), call.dtype)
    near = abs(weight) < 0.5
    factor = call.emit.constant(weight if near else 1 - weight, wide)
    part = call.emit.insert(nn.MulOp(call.emit.insert(nn.SubOp(end, start)), factor))
    result = nn.AddOp(start, part) if near else nn.SubOp(end, part)
    return call.emit.cast(call.emit.insert(result), call.dtype)


def _of_value(call: Call, start: SSAValue, end: SSAValue, weight: SSAValue) -> SSAValue:
    """Interpolate with a weight that is known to the step only."""
    one, half = (call.emit.constant(number, call.wide_dtype) for number in (1.0, 0.5))
    way = call.emit.insert(nn.SubOp(end, start))
    from_start = call.emit.insert(nn.AddOp(start, call.emit.insert(nn.MulOp(way, weight))))
    rest = call.emit.insert(nn.SubOp(one, weight))
    from_end = call.emit.insert(nn.SubOp(end, call.emit.insert(nn.MulOp(way, rest))))
    near = call.emit.insert(CLASSES["lt"](call.emit.insert(CLASSES["abs"](weight)), half))
    return call.emit.insert(CLASSES["where"](near, from_start, from_end))
