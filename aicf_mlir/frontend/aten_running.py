"""The rows of `aten_table` for running products, extremes and log-sums of a row, and for the rounding of training with
few bits.

A row takes log2(n) passes: each element is combined with the one 1, 2, 4, … places before it, which already combines
earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_slices import dimension
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of

Parts = Sequence[SSAValue]
Combine = Callable[[Parts, Parts], Parts]
"""Combines the part before with the part after, each as one tensor or as several in parallel."""


def running(call: Call, parts: Parts, dim: int, combine: Combine) -> Parts:
    """Each element combined with all before it along `dim`; `combine` is associative."""
    size, step = shape_of(parts[0])[dim], 1
    while step < size:
        first, behind = zip(*(call.emit.split(each, dim, [step, size - step]) for each in parts), strict=True)
        before = [call.emit.split(each, dim, [size - step, step])[0] for each in parts]
        made = combine(before, behind)
        parts = [call.emit.insert(nn.ConcatOp(pair, dim)) for pair in zip(first, made, strict=True)]
        step *= 2
    return parts


def running_of(name: str) -> AtenRule:
    """Running results of a pointwise op of two numbers, rounded once."""

    def row(call: Call) -> SSAValue:
        x = call.of(call["self"], call.wide_dtype)
        if shape_of(x):
            (x,) = running(
                call, [x], dimension(call, x), lambda a, b: [call.emit.insert(CLASSES[name](a[0], b[0]))]
            )
        return call.emit.cast(x, call.expected.dtype)

    return row


def running_extreme(name: str) -> AtenRule:
    """Return the rule for the extreme of each element and the ones before it, and the last index that has it; `name`
    compares.
    """

    def row(call: Call) -> Value:
        x = call.value("self")
        if not shape_of(x):
            return x, call.emit.constant(0, torch.int64)
        dim = dimension(call, x)
        apart = [size if d == dim else 1 for d, size in enumerate(shape_of(x))]
        index = call.materialize(torch.arange(shape_of(x)[dim]).reshape(apart).expand(shape_of(x)))

        def later(before: Parts, behind: Parts) -> Parts:
            wins = call.emit.insert(CLASSES[name](behind[0], before[0]))
            if is_float(x):
                is_nan = call.emit.insert(CLASSES["isnan"](behind[0]))
                wins = call.emit.insert(CLASSES["bitwise_or"](wins, is_nan))
            return [
                call.emit.insert(CLASSES["where"](wins, b, a)) for a, b in zip(before, behind, strict=True)
            ]

        values = call.emit.insert(nn.DetachOp(x)) if is_float(x) else x
        index = running(call, [values, index], dim, later)[1]
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
