"""The rows of `aten_table` that reduce elements at places given by an index or by the lengths of segments."""

from __future__ import annotations

import math

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_indexing import added, cropped, vector
from aicf_mlir.frontend.aten_indices import index_below, value_of
from aicf_mlir.frontend.aten_slices import dimension
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of

KINDS = {"amax": "max", "amin": "min", "prod": "prod", "max": "max", "min": "min"}
"""The reductions of `nn.scatter_reduce` by torch's names."""


def scatter_reduce(call: Call) -> SSAValue:
    """The elements of `src` reduced at the places of a gather."""
    x, source = vector(call, call.value("self")), vector(call, call.of(call["src"], call.expected.dtype))
    dim = dimension(call, x)
    index = vector(call, value_of(call, index_below(call, call["index"], shape_of(x)[dim])))
    source = cropped(call, source, shape_of(index))
    made = reduced_there(call, x, index, source, dim, call["reduce"], bool(call["include_self"]))
    return call.emit.reshape(made, call.shape)


def index_reduce(call: Call) -> SSAValue:
    """Reduce slices of `source` at the places along `dim` that a vector names."""
    x, source = vector(call, call.value("self")), vector(call, call.of(call["source"], call.expected.dtype))
    dim = dimension(call, x)
    rows = vector(call, value_of(call, index_below(call, call["index"], shape_of(x)[dim])))
    index = along(call, rows, shape_of(source), [dim])
    made = reduced_there(call, x, index, source, dim, call["reduce"], bool(call["include_self"]))
    return call.emit.reshape(made, call.shape)


def along(call: Call, index: SSAValue, shape: tuple[int, ...], dims: list[int]) -> SSAValue:
    """Return an index of the dimensions `dims` repeated over the others of `shape`."""
    apart = [size if d in dims else 1 for d, size in enumerate(shape)]
    return call.emit.broadcast(call.emit.reshape(index, apart), shape)


def reduced_there(
    call: Call, x: SSAValue, index: SSAValue, source: SSAValue, dim: int, reduce: str, include_self: bool
) -> SSAValue:
    """`x` with the elements of `source` reduced at the places that an index of the same shape names along `dim`."""
    if not math.prod(shape_of(index)):
        return call.emit.depending(x, source)
    if reduce in ("sum", "mean"):
        return added_there(call, x, index, source, dim, reduce == "mean", include_self)
    if not is_float(x):
        raise Forbidden(f"{reduce} of {call.named(call.expected.dtype)} by an index; convert to float before")
    flat, numbers, values = as_elements(call, x, index, source, dim)
    made = nn.ScatterReduceOp(flat, numbers, values, KINDS[reduce], include_self)
    return call.emit.reshape(call.emit.insert(made), shape_of(x))


def as_elements(
    call: Call, x: SSAValue, index: SSAValue, source: SSAValue, dim: int
) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Return x as rows of one element, their numbers that the index names, and `source` as such rows."""
    shape, count = shape_of(x), math.prod(shape_of(index))
    numbers = call.emit.insert(nn.ElementNumberOp(index, shape, dim))
    return (
        call.emit.reshape(x, (math.prod(shape), 1)),
        call.emit.reshape(numbers, (count,)),
        call.emit.reshape(source, (count, 1)),
    )


def added_there(
    call: Call, x: SSAValue, index: SSAValue, source: SSAValue, dim: int, is_mean: bool, include_self: bool
) -> SSAValue:
    """Return the sums, or the means."""
    if is_mean and not is_float(x):
        raise Forbidden(f"the mean of {call.named(call.expected.dtype)} by an index; convert to float before")
    shape, count = shape_of(x), math.prod(shape_of(index))
    numbers = call.emit.reshape(call.emit.insert(nn.ElementNumberOp(index, shape, dim)), (count,))

    def sums(of: SSAValue, values: SSAValue) -> SSAValue:
        flat = call.emit.reshape(of, (math.prod(shape), 1))
        return call.emit.reshape(added(call, flat, numbers, call.emit.reshape(values, (count, 1))), shape)

    if include_self and not is_mean:
        return sums(x, source)
    dtype = call.wide_dtype if is_float(x) else torch.float64
    none, one = (call.emit.constant(n, dtype, shape) for n in (0, 1))
    ones = call.emit.constant(1, dtype, shape_of(index))
    times = sums(none, ones)
    if not include_self:
        hit = call.emit.insert(CLASSES["gt"](times, none))
        x = call.emit.insert(CLASSES["where"](hit, call.of(0, call.expected.dtype), x))
    total = sums(x, source)
    if not is_mean:
        return total
    times = call.emit.insert(CLASSES["add"](times, one) if include_self else CLASSES["maximum"](times, one))
    return call.emit.insert(CLASSES["div"](total, call.emit.cast(times, call.expected.dtype)))


EMPTY = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""The value of a segment without elements in torch, by the name of a reduction."""


def segment_reduce(call: Call) -> SSAValue:
    """Reduce neighbours along `axis`: segments of `lengths`, or between `offsets`; each row in front of `axis` has its
    own.
    """
    reduce, axis, initial = call["reduce"], int(call["axis"]), call["initial"]
    if call["indices"] is not None:
        raise Refused("segments given by indices; give their lengths")
    x = call.value("data")
    *batch, size = shape_of(x)[: axis + 1]
    ends = ends_of_segments(call, size)
    count = shape_of(ends)[-1]
    positions = call.materialize(torch.arange(size, device="cpu")[:, None])
    before = call.emit.insert(CLASSES["le"](call.emit.reshape(ends, (*batch, 1, count)), positions))
    number = call.emit.insert(nn.SumOp(call.emit.cast(before, torch.int64), [axis + 1], False))
    index = along(call, number, shape_of(x), list(range(axis + 1)))
    shape = (*batch, count, *shape_of(x)[axis + 1 :])
    start = (0.0 if reduce == "mean" else EMPTY[reduce]) if reduce in KINDS or initial is None else initial
    found = call.emit.constant(start, call.expected.dtype, shape)
    is_mean = reduce == "mean"
    found = reduced_there(call, found, index, x, axis, "sum" if is_mean else reduce, True)
    if reduce in KINDS and initial is not None:
        wanted = call.emit.constant(initial, call.expected.dtype, shape)
        return with_initial(call, found, wanted, reduce)
    if not is_mean:
        return found
    ones = call.emit.constant(1, call.expected.dtype, shape_of(x))
    none = call.emit.constant(0, call.expected.dtype, shape)
    times = reduced_there(call, none, index, ones, axis, "sum", True)
    has_any = call.emit.insert(CLASSES["gt"](times, none))
    times = call.emit.insert(CLASSES["where"](has_any, times, call.of(1, call.expected.dtype)))
    mean = call.emit.insert(CLASSES["div"](found, times))
    empty = call.of(EMPTY["mean"] if initial is None else initial, call.expected.dtype)
    return call.emit.insert(CLASSES["where"](has_any, mean, empty))


def with_initial(call: Call, found: SSAValue, initial: SSAValue, reduce: str) -> SSAValue:
    """Return the found value reduced with a number; of two equal extremes the gradient goes to the found value."""
    if reduce == "prod":
        return call.emit.insert(CLASSES["mul"](found, initial))
    beyond = CLASSES["lt" if reduce == "max" else "gt"](found, initial)
    return call.emit.insert(CLASSES["where"](call.emit.insert(beyond), initial, found))


def ends_of_segments(call: Call, size: int) -> SSAValue:
    """Return the end of each segment of a row of `size`; a step whose segments are not the whole row updates nothing."""
    if call["lengths"] is None:
        offsets = call.of(call["offsets"], torch.int64)
        dim = len(shape_of(offsets)) - 1
        count = shape_of(offsets)[dim] - 1
        first, ends = call.emit.split(offsets, dim, [1, count])
        expect_all(call, first, 0)
    else:
        lengths = call.of(call["lengths"], torch.int64)
        dim = len(shape_of(lengths)) - 1
        count = shape_of(lengths)[dim]
        ends = call.emit.insert(nn.running_sum(lengths, dim))
    last = ends if count == 1 else call.emit.split(ends, dim, [count - 1, 1])[1]
    expect_all(call, last, size)
    return ends


def expect_all(call: Call, values: SSAValue, number: int) -> None:
    """Emit a check: a step in which one of the values is another number updates nothing."""
    holds = call.emit.insert(CLASSES["eq"](values, call.emit.constant(number, torch.int64)))
    call.emit.check_value(holds, "condition", f"segments that add up to {number}")
