"""The rows of `aten_table` for parts of tensors: all of them are nn.split and nn.concat. Slices with a step are in
aten_rearranging.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.frontend.call import Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.tensor_op import shape_of


def dimension(call: Call, x: SSAValue) -> int:
    """The argument `dim`, counted from the front."""
    return call.arguments.get("dim", 0) % len(shape_of(x))


def split(call: Call) -> Value:
    """Split into parts of one size, the last perhaps smaller, of given sizes, or a number of parts: the results' shapes
    define it.
    """
    x = call.value("self")
    dim = dimension(call, x)
    return tuple(call.emit.split(x, dim, [int(part.shape[dim]) for part in call.expected]))


def unbind(call: Call) -> Value:
    """Each index of a dimension, without that dimension."""
    x = call.value("self")
    dim = dimension(call, x)
    parts = call.emit.split(x, dim, [1] * shape_of(x)[dim])
    return tuple(
        call.emit.reshape(part, tuple(like.shape)) for part, like in zip(parts, call.expected, strict=True)
    )


def part(call: Call, x: SSAValue, dim: int, start: int, size: int) -> SSAValue:
    """The indices from `start` on of a dimension."""
    sizes = [start, size, shape_of(x)[dim] - start - size]
    index = 1 if start else 0
    return call.emit.split(x, dim, [n for i, n in enumerate(sizes) if n or i == 1])[index]


def clamped(index: int | None, size: int, absent: int) -> int:
    """A bound of a slice as Python understands it."""
    if index is None or index == sys.maxsize:
        return absent
    return min(max(index + size if index < 0 else index, 0), size)


def select(call: Call) -> SSAValue:
    """x[index], without the dimension."""
    x = call.value("self")
    dim = dimension(call, x)
    index = call["index"] % shape_of(x)[dim]
    return call.emit.reshape(part(call, x, dim, index, 1), call.shape)


def narrow(call: Call) -> SSAValue:
    """Return a number of indices from one on."""
    x = call.value("self")
    dim = dimension(call, x)
    start = call["start"]
    if not isinstance(start, int):
        raise Refused("a start that is a tensor")
    return part(call, x, dim, start % shape_of(x)[dim] if start < 0 else start, call["length"])


def joined(call: Call, values: Sequence[SSAValue]) -> SSAValue:
    """Return the tensors concatenated along `dim`, which counts in the result."""
    dim = call.arguments.get("dim", 0) % len(call.shape)
    return call.emit.insert(nn.ConcatOp(values, dim))


def concat(call: Call) -> SSAValue:
    """Concatenate the tensors, each in the element type of the result; empty vectors are left out, as in torch."""
    values = [
        call.emit.cast(value, call.expected.dtype)
        for value in call.values("tensors")
        if shape_of(value) != (0,) or call.shape == (0,)
    ]
    return joined(call, values)


def stack(call: Call) -> SSAValue:
    """Stack the tensors along a new dimension."""
    dim = call.arguments.get("dim", 0) % len(call.shape)
    shape = (*call.shape[:dim], 1, *call.shape[dim + 1 :])
    cast = [call.emit.cast(value, call.expected.dtype) for value in call.values("tensors")]
    return joined(call, [call.emit.reshape(value, shape) for value in cast])
