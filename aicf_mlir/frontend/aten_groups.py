"""Rows in groups, as layers of experts have them: the size of each group, and its product with its own matrix."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.tensor_op import shape_of


def _made(call: Call, name: str, *operands: SSAValue) -> SSAValue:
    return call.emit.insert(CLASSES[name](*operands))


def histogram(call: Call) -> SSAValue:
    """Count the elements in each of `bins` equal parts of min..max; the last part includes max, and other elements are
    not counted.
    """
    bins, low, high = call["bins"], float(call["min"]), float(call["max"])
    if low >= high:
        raise Refused("bounds that follow from the values; give min and max")
    wide = call.wide_dtype if call.expected.dtype.is_floating_point else torch.float64
    x = call.operand("self", wide)
    x = call.emit.reshape(x, (math.prod(shape_of(x)), 1))
    share = _made(call, "div", _made(call, "sub", x, call.of(low, wide)), call.of(high - low, wide))
    place = _made(call, "floor", _made(call, "mul", share, call.of(bins, wide)))
    place = _made(call, "minimum", place, call.of(bins - 1, wide))
    inside = _made(
        call,
        "bitwise_and",
        _made(call, "ge", x, call.of(low, wide)),
        _made(call, "le", x, call.of(high, wide)),
    )
    found = _made(
        call, "eq", place, call.materialize(torch.arange(bins, dtype=wide, device="cpu").reshape(1, bins))
    )
    counted = call.emit.cast(_made(call, "bitwise_and", inside, found), torch.int64)
    return call.emit.cast(call.emit.insert(nn.SumOp(counted, [0])), call.expected.dtype)


def grouped_product(call: Call) -> SSAValue:
    """Return x[S, K] by w[G, K, N]: rows up to offs[0] by the first matrix, from there to offs[1] by the second; 0
    after the last.
    """
    x, w = (
        call.value(name) for name in (("self", "mat2") if "mat2" in call.arguments else ("input", "weight"))
    )
    given = [name for name in ("bias", "out_dtype") if call.arguments.get(name) is not None]
    if given or len(shape_of(x)) != 2 or len(shape_of(w)) != 3 or call["offs"] is None:
        raise Refused("other operands than x[S, K], w[G, K, N] and offs[G]")
    (rows, inner), (groups, _, columns) = shape_of(x), shape_of(w)
    ends = call.emit.reshape(call.operand("offs", torch.int64), (1, groups))
    places = call.materialize(torch.arange(rows, device="cpu").reshape(rows, 1))
    passed = call.emit.cast(_made(call, "le", ends, places), torch.int64)
    group = call.emit.insert(nn.SumOp(passed, [1], keepdim=True))
    inside = _made(call, "eq", group, call.materialize(torch.arange(groups, device="cpu").reshape(1, groups)))
    spread = _made(
        call,
        "where",
        call.emit.reshape(inside, (rows, groups, 1)),
        call.emit.reshape(x, (rows, 1, inner)),
        call.emit.constant(0.0, call.dtype),
    )
    return call.emit.insert(
        nn.MatmulOp(
            call.emit.reshape(spread, (rows, groups * inner)), call.emit.reshape(w, (groups * inner, columns))
        )
    )
