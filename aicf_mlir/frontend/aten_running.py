"""The rows of `aten_table` for running sums, products, extremes and log-sums of a row, and for the rounding of training
with few bits.
"""

from __future__ import annotations

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_slices import dimension
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of


def running_sum(call: Call) -> SSAValue:
    """Running sums, in the type of the result."""
    x = call.of(call["self"], call.expected.dtype)
    return x if is_single(call, x) else call.emit.insert(nn.running_sum(x, dimension(call, x)))


def is_single(call: Call, x: SSAValue) -> bool:
    """True if each running result has one element: itself."""
    return not shape_of(x) or shape_of(x)[dimension(call, x)] == 1


def running(kind: str) -> AtenRule:
    """Running results of a kind of `nn.scan`, rounded once."""

    def row(call: Call) -> SSAValue:
        x = call.of(call["self"], call.wide_dtype)
        if not is_single(call, x):
            x = call.emit.insert(nn.ScanOp(x, dimension(call, x), kind))
        return call.emit.cast(x, call.expected.dtype)

    return row


def running_extreme(kind: str) -> AtenRule:
    """Return the rule for the extreme of each element and the ones before it, and the last index that has it."""

    def row(call: Call) -> Value:
        x = call.value("self")
        if not shape_of(x):
            return x, call.emit.constant(0, torch.int64)
        dim = dimension(call, x)
        values = call.emit.insert(nn.DetachOp(x)) if is_float(x) else x
        index = call.emit.insert(nn.ScanOp(values, dim, kind))
        return call.emit.insert(nn.GatherOp(x, index, dim)), index

    return row


def fake_quantize(call: Call) -> SSAValue:
    """Return the nearest of the numbers scale · (q - zero_point), of whole q from `quant_min` to `quant_max`.

    The gradient is that of x where q was in that range, and 0 elsewhere. Torch multiplies by the one scale of a tensor
    in float32, and by scales of channels in the type of x.
    """
    x, axis = call.value("self"), call.arguments.get("axis")
    apart = [size if d == axis else 1 for d, size in enumerate(shape_of(x))]

    def operand(name: str) -> SSAValue:
        value = call.of(call[name], torch.float32)
        value = call.emit.insert(nn.DetachOp(value))
        return value if axis is None else call.emit.reshape(value, apart)

    def make(name: str, *values: SSAValue, **parameters: float) -> SSAValue:
        return call.emit.insert(CLASSES[name](*values, **parameters))

    scale, zero_point, wide = operand("scale"), operand("zero_point"), call.wide_dtype
    low, high = float(call["quant_min"]), float(call["quant_max"])
    inverse = make("div", call.of(1.0, torch.float32), scale)
    held = call.emit.cast(call.emit.insert(nn.DetachOp(x)), wide)
    level = make("round", make("mul", held, call.emit.cast(inverse, wide)))
    level = make("add", level, call.emit.cast(zero_point, wide))
    inside = make(
        "bitwise_and", make("ge", level, call.of(low, wide)), make("le", level, call.of(high, wide))
    )
    last = torch.float32 if axis is None else wide
    steps = make("sub", make("clamp", level, min=low, max=high), call.emit.cast(zero_point, wide))
    product = make("mul", call.emit.cast(steps, last), call.emit.cast(scale, last))
    product = call.emit.cast(product, call.dtype)
    through = make("where", inside, x, call.of(0.0, call.dtype))
    return make("add", product, make("sub", through, call.emit.insert(nn.DetachOp(through))))
