"""The rows of `aten_table` that read and write at indices."""

from __future__ import annotations

import math
from typing import Any

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.ranking import is_short
from aicf_mlir.frontend.aten_indices import (
    MASK,
    Known,
    Several,
    index_below,
    is_mask,
    of_slices,
    several,
    shape_of_index,
    taken,
    value_of,
)
from aicf_mlir.frontend.aten_masked import put_under_mask
from aicf_mlir.frontend.aten_slices import clamped, dimension, part
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of


def refused(reason: str) -> AtenRule:
    """Return the rule for an op that no step can have, with the reason."""

    def row(call: Call) -> Value:
        raise Forbidden(reason)

    return row


def vector(call: Call, x: SSAValue) -> SSAValue:
    """A number as a vector of one."""
    return x if shape_of(x) else call.emit.reshape(x, (1,))


def flattened(call: Call, index: Known) -> Known:
    """An index as a vector."""
    if isinstance(index, torch.Tensor):
        return index.reshape(-1)
    return call.emit.reshape(index, (math.prod(shape_of(index)),))


def gather(call: Call) -> SSAValue:
    """Return the elements that the index names along `dim`; whole slices if it is repeated over all other dimensions."""
    x = vector(call, call.value("self"))
    dim = dimension(call, x)
    return call.emit.reshape(gathered(call, x, call["index"], dim), call.shape)


def gathered(call: Call, x: SSAValue, index: Any, dim: int) -> SSAValue:
    """Gather as `gather` does, with an index of the rank of x, or a number."""
    size = shape_of(x)[dim]
    slices = of_slices(index, dim, shape_of(x)) if shape_of_index(index) else index
    if slices is not None:
        return taken(call, x, flattened(call, index_below(call, slices, size)), dim)
    return call.emit.insert(nn.GatherOp(x, value_of(call, index_below(call, index, size)), dim))


def index_select(call: Call) -> SSAValue:
    """The slices along `dim` that a vector names."""
    x = vector(call, call.value("self"))
    dim = dimension(call, x)
    index = flattened(call, index_below(call, call["index"], shape_of(x)[dim]))
    return call.emit.reshape(taken(call, x, index, dim), call.shape)


def take(call: Call) -> SSAValue:
    """Elements by their number in row-major order."""
    x = call.value("self")
    flat = call.emit.reshape(x, (math.prod(shape_of(x)),))
    index = index_below(call, call["index"], shape_of(flat)[0], wraps=True)
    return taken(call, flat, index, 0)


def take_along_dim(call: Call) -> SSAValue:
    """Gather with operands broadcast in all dimensions but `dim`; without `dim`, from the flat tensor."""
    if call["dim"] is None:
        x = call.value("self")
        flat = call.emit.reshape(x, (math.prod(shape_of(x)),))
        index = index_below(call, call["indices"], shape_of(flat)[0], wraps=True)
        return call.emit.reshape(taken(call, flat, index, 0), call.shape)
    x, index = call.value("self"), call.value("indices")
    dim = dimension(call, x)
    wide = list(call.shape)
    index = call.emit.broadcast(index, wide)
    wide[dim] = shape_of(x)[dim]
    return gathered(call, call.emit.broadcast(x, wide), index, dim)


def index(call: Call) -> SSAValue:
    """Return x[…, i, j, …]: the index takes the place of its dimensions, or goes in front if others are between them."""
    x = call.value("self")
    if any(each is not None and is_mask(each) for each in call["indices"]):
        raise Forbidden(MASK)
    place = several(call, x, call["indices"])
    x = as_one_dimension(call, x, place, in_front=not place.adjacent)
    dim = place.dims[0] if place.adjacent else 0
    return taken(call, x, place.index, dim)


def as_one_dimension(call: Call, x: SSAValue, place: Several, in_front: bool) -> SSAValue:
    """Return `x` with the indexed dimensions as one: in front, or in their place."""
    shape = shape_of(x)
    others = [d for d in range(len(shape)) if d not in place.dims]
    before = [] if in_front else [d for d in others if d < place.dims[0]]
    behind = [d for d in others if d not in before]
    x = call.emit.transpose(x, [*before, *place.dims, *behind])
    return call.emit.reshape(x, (*(shape[d] for d in before), place.size, *(shape[d] for d in behind)))


def index_put(call: Call) -> SSAValue:
    """Return the tensor with `values` at the indices, or added there; under a mask one number or a tensor like x."""
    x, values, dtype = call.value("self"), call["values"], call.expected.dtype
    given = [each for each in call["indices"] if each is not None]
    if any(is_mask(each) for each in given):
        return put_under_mask(call, x, given)
    place = several(call, x, call["indices"])
    shape, wide = shape_of(x), shape_of_index(place.index)
    others = [d for d in range(len(shape)) if d not in place.dims]
    first = sum(d < place.dims[0] for d in others) if place.adjacent else 0
    result = [*(shape[d] for d in others[:first]), *wide, *(shape[d] for d in others[first:])]
    source = call.emit.broadcast(call.of(values, dtype), result)
    last = range(first + len(wide), len(result))
    source = call.emit.transpose(source, [*range(first, first + len(wide)), *range(first), *last])
    rows = as_one_dimension(call, x, place, in_front=True)
    made = put_rows(call, rows, value_of(call, place.index), source, accumulate=bool(call["accumulate"]))
    order = [*place.dims, *others]
    made = call.emit.reshape(made, [shape[d] for d in order])
    return call.emit.transpose(made, sorted(range(len(order)), key=order.__getitem__))


def put_rows(call: Call, x: SSAValue, index: SSAValue, source: SSAValue, accumulate: bool) -> SSAValue:
    """Replace the slices of x along its first dimension that `index` names by the slices of `source`, or add to them."""
    count, columns = math.prod(shape_of(index)), math.prod(shape_of(x)[1:])
    flat = call.emit.reshape(x, (shape_of(x)[0], columns))
    rows, source = call.emit.reshape(index, (count,)), call.emit.reshape(source, (count, columns))
    if not count:
        return call.emit.depending(x, source)
    if accumulate:
        made = added(call, flat, rows, source)
    elif is_short(count):
        wide = call.emit.broadcast(call.emit.reshape(rows, (count, 1)), (count, columns))
        made = replaced(call, flat, wide, source, 0)
    else:
        made = call.emit.insert(nn.ScatterRowsOp(flat, rows, source))
    return call.emit.reshape(made, shape_of(x))


def added(call: Call, x: SSAValue, rows: SSAValue, source: SSAValue) -> SSAValue:
    """`source` added to the rows of the matrix x; integers as float64, exact up to 2^53."""
    if is_float(x):
        return call.emit.insert(nn.ScatterAddOp(x, rows, source))
    if call.expected.dtype is torch.bool:
        raise Refused("a sum of booleans")
    wide, source = (call.emit.cast(value, torch.float64) for value in (x, source))
    return call.emit.cast(call.emit.insert(nn.ScatterAddOp(wide, rows, source)), call.expected.dtype)


def replaced(call: Call, x: SSAValue, index: SSAValue, source: SSAValue, dim: int) -> SSAValue:
    """Return x with `source` at the places of a gather by an index of its shape, within x's shape in all dimensions but
    `dim`.
    """
    if math.prod(shape_of(index)) == 0:
        return call.emit.depending(x, source)
    if is_short(shape_of(index)[dim]):
        index, source = padded_beside(call, x, index, source, dim)
    return nn.replaced(call.emit.insert, x, index, source, dim)


def padded_beside(
    call: Call, x: SSAValue, index: SSAValue, source: SSAValue, dim: int
) -> tuple[SSAValue, SSAValue]:
    """Return an index and a source as large as x in all dimensions but `dim`; new places of the index select nothing."""
    pairs = zip(shape_of(x), shape_of(index), strict=True)
    rest = [0 if d == dim else a - b for d, (a, b) in enumerate(pairs)]
    if not any(rest):
        return index, source
    none = [0] * len(rest)
    return (
        call.emit.insert(nn.PadOp(index, none, rest, -1.0)),
        call.emit.insert(nn.PadOp(source, none, rest)),
    )


def scatter(call: Call) -> SSAValue:
    """The elements of `src`, or a number, at the places of a gather."""
    if call.arguments.get("reduce") is not None:
        raise Forbidden("scatter with reduce, which has no gradient in torch; use scatter_reduce")
    x = vector(call, call.value("self"))
    dim = dimension(call, x)
    index = vector(call, value_of(call, index_below(call, call["index"], shape_of(x)[dim])))
    value = call.arguments.get("src", call.arguments.get("value"))
    source = vector(call, call.of(value, call.expected.dtype))
    source = cropped(call, source, shape_of(index)) if "src" in call.arguments else source
    source = call.emit.broadcast(source, shape_of(index))
    return call.emit.reshape(replaced(call, x, index, source, dim), call.shape)


def cropped(call: Call, x: SSAValue, shape: tuple[int, ...]) -> SSAValue:
    """The first elements of x in each dimension."""
    rest = [wanted - size for size, wanted in zip(shape_of(x), shape, strict=True)]
    return call.emit.insert(nn.PadOp(x, [0] * len(rest), rest)) if any(rest) else x


def scatter_add(call: Call) -> SSAValue:
    """The elements of `src` added at the places of a gather: whole slices where the index is repeated."""
    x, source = vector(call, call.value("self")), vector(call, call.of(call["src"], call.expected.dtype))
    shape, dim = shape_of(x), dimension(call, x)
    given = call["index"]
    slices = of_slices(given, dim, shape) if shape_of_index(given) else None
    if slices is not None:
        rows = value_of(call, index_below(call, slices, shape[dim]))
        count = math.prod(shape_of(rows))
        source = cropped(call, source, (*shape[:dim], count, *shape[dim + 1 :]))
        return put_slices(call, x, call.emit.reshape(rows, (count,)), source, dim, accumulate=True)
    index = vector(call, value_of(call, index_below(call, given, shape[dim])))
    source = cropped(call, source, shape_of(index))
    count = math.prod(shape_of(index))
    numbers = call.emit.insert(nn.ElementNumberOp(index, shape, dim))
    flat = call.emit.reshape(x, (math.prod(shape), 1))
    numbers, source = call.emit.reshape(numbers, (count,)), call.emit.reshape(source, (count, 1))
    return call.emit.reshape(added(call, flat, numbers, source), call.shape)


def put_slices(
    call: Call, x: SSAValue, rows: SSAValue, source: SSAValue, dim: int, accumulate: bool
) -> SSAValue:
    """Replace the slices of x along `dim` that a vector names by the slices of `source`, or add to them."""
    order = [dim, *(d for d in range(len(shape_of(x))) if d != dim)]
    x, source = call.emit.transpose(x, order), call.emit.transpose(source, order)
    made = put_rows(call, x, rows, source, accumulate)
    made = call.emit.transpose(made, sorted(range(len(order)), key=order.__getitem__))
    return call.emit.reshape(made, call.shape) if accumulate else made


def index_add(call: Call) -> SSAValue:
    """Slices of `source`, times `alpha`, added along `dim`."""
    x, source = vector(call, call.value("self")), vector(call, call.of(call["source"], call.expected.dtype))
    dim = dimension(call, x)
    if call.arguments.get("alpha", 1) != 1:
        source = call.emit.insert(CLASSES["mul"](source, call.of(call["alpha"], call.expected.dtype)))
    rows = vector(call, value_of(call, index_below(call, call["index"], shape_of(x)[dim])))
    return put_slices(call, x, rows, source, dim, accumulate=True)


def index_copy(call: Call) -> SSAValue:
    """Replace slices of x along `dim` by slices of `source`, or by a number."""
    x = vector(call, call.value("self"))
    dim = dimension(call, x)
    wraps = "value" in call.arguments
    rows = vector(call, value_of(call, index_below(call, call["index"], shape_of(x)[dim], wraps)))
    source = call.of(call.arguments.get("source", call.arguments.get("value")), call.expected.dtype)
    if not wraps:
        return call.emit.reshape(with_slices(call, x, rows, vector(call, source), dim), call.shape)
    # A number that is put into a place twice counts once in its gradient.
    size = shape_of(x)[dim]
    none, one = (call.materialize(torch.full((n,), k, device="cpu")) for n, k in ((size, 0), (1, 1)))
    filled = call.emit.insert(CLASSES["eq"](with_slices(call, none, rows, one, 0), one))
    filled = call.emit.reshape(filled, [size if d == dim else 1 for d in range(len(shape_of(x)))])
    found = call.emit.insert(CLASSES["where"](filled, call.emit.reshape(source, ()), x))
    return call.emit.reshape(found, call.shape)


def with_slices(call: Call, x: SSAValue, rows: SSAValue, source: SSAValue, dim: int) -> SSAValue:
    """Return the tensor with `source`, repeated if needed, in place of the slices along `dim` that a vector names."""
    shape, count = shape_of(x), shape_of(rows)[0]
    wide = (*shape[:dim], count, *shape[dim + 1 :])
    if not is_short(count):
        return put_slices(call, x, rows, call.emit.broadcast(source, wide), dim, accumulate=False)
    along = [count if d == dim else 1 for d in range(len(shape))]
    index = call.emit.broadcast(call.emit.reshape(rows, along), wide)
    return replaced(call, x, index, call.emit.broadcast(source, wide), dim)


def slice_scatter(call: Call) -> SSAValue:
    """Return the tensor with `src` in place of x[start:end:step], like an assignment to a slice."""
    x, source = call.value("self"), call.of(call["src"], call.expected.dtype)
    dim, step = dimension(call, x), int(call["step"])
    size = shape_of(x)[dim]
    start, end = clamped(call["start"], size, 0), clamped(call["end"], size, size)
    count = shape_of(source)[dim]
    if not count:
        return call.emit.depending(x, source)
    if step != 1:
        rows = call.materialize(torch.arange(start, end, step, device="cpu"))
        return with_slices(call, x, rows, source, dim)
    sides = [
        (part(call, x, dim, 0, start), start),
        (source, 1),
        (part(call, x, dim, end, size - end), size - end),
    ]
    kept = [value for value, width in sides if width]
    return source if len(kept) == 1 else call.emit.insert(nn.ConcatOp(kept, dim))


def diagonal_scatter(call: Call) -> SSAValue:
    """Return the tensor with `src` in place of a diagonal of two dimensions, which is the last dimension of `src`."""
    x, source = call.value("self"), call.of(call["src"], call.expected.dtype)
    rank, offset = len(shape_of(x)), int(call["offset"])
    first, second = call["dim1"] % rank, call["dim2"] % rank
    order = [d for d in range(rank) if d not in (first, second)] + [first, second]
    x = call.emit.transpose(x, order)
    *batch, rows, columns = shape_of(x)
    if not (count := shape_of(source)[-1]):
        return call.emit.depending(call.value("self"), source)
    wide = rows if offset >= 0 else columns  # the number of rows, or columns, that have an element of it
    if wide > count:
        none = [0] * (rank - 1)
        source = call.emit.insert(nn.PadOp(source, none, [*none[1:], wide - count]))
    source = call.emit.reshape(source, (*batch, *((rows, 1) if offset >= 0 else (1, columns))))
    on = torch.arange(columns, device="cpu") - torch.arange(rows, device="cpu")[:, None] == offset
    made = call.emit.insert(CLASSES["where"](call.materialize(on), source, x))
    return call.emit.transpose(made, sorted(range(rank), key=order.__getitem__))


def one_hot(call: Call) -> SSAValue:
    """Return 1 at the class of the last dimension, else 0."""
    classes = int(call["num_classes"])
    index = value_of(call, index_below(call, call["self"], classes))
    each = call.materialize(torch.arange(classes, device="cpu"))
    hit = call.emit.insert(CLASSES["eq"](call.emit.reshape(index, (*shape_of(index), 1)), each))
    return call.emit.cast(hit, torch.int64)
