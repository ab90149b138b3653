"""The rows of `aten_table` whose results have elements of their operand at other places, or in another order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.frontend.aten_indices import taken
from aicf_mlir.frontend.aten_slices import clamped, dimension, part
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of


def pad(call: Call, of_name: str = "constant") -> SSAValue:
    """Pad before and after each dimension, in pairs that begin with the last one; negative numbers cut off."""
    x, mode = call.value("self"), call.arguments.get("mode", of_name)
    widths = list(call.arguments.get("pad", call.arguments.get("padding")) or [])
    rank = len(shape_of(x))
    pairs = [(0, 0)] * (rank - len(widths) // 2)
    pairs += [(widths[i], widths[i + 1]) for i in range(len(widths) - 2, -1, -2)]
    if mode != "constant":
        return padded_from_itself(call, x, pairs, mode)
    number = 0.0 if (value := call.arguments.get("value")) is None else float(value)
    low, high = ([pair[side] for pair in pairs] for side in (0, 1))
    if not any((*low, *high)):
        return x
    if 0 in shape_of(x):
        return call.emit.depending(call.emit.constant(number, call.expected.dtype, call.shape), x)
    return call.emit.insert(nn.PadOp(x, low, high, number))


def padded_from_itself(call: Call, x: SSAValue, pairs: Sequence[tuple[int, int]], mode: str) -> SSAValue:
    """Pad dimension by dimension with parts of the tensor."""
    if any(width < 0 for pair in pairs for width in pair):
        raise Refused(f'negative padding in mode "{mode}"')
    for dim, (low, high) in enumerate(pairs):
        if low or high:
            size = shape_of(x)[dim]
            sides = SIDES[mode]
            parts = [sides[0](call, x, dim, low, size), x, sides[1](call, x, dim, high, size)]
            kept = [each for each, width in zip(parts, (low, 1, high), strict=True) if width]
            x = call.emit.insert(nn.ConcatOp(kept, dim))
    return x


Side = Callable[[Call, SSAValue, int, int, int], SSAValue]
"""The padding of one side from the tensor, the dimension, the width and the size of the dimension."""


def _reflected(first: Callable[[int, int], int]) -> Side:
    def side(call: Call, x: SSAValue, dim: int, width: int, size: int) -> SSAValue:
        if not width:
            return x
        return call.emit.insert(nn.FlipOp(part(call, x, dim, first(width, size), width), [dim]))

    return side


def _moved(first: Callable[[int, int], int]) -> Side:
    return lambda call, x, dim, width, size: part(call, x, dim, first(width, size), width) if width else x


def _repeated(first: Callable[[int], int]) -> Side:
    def side(call: Call, x: SSAValue, dim: int, width: int, size: int) -> SSAValue:
        shape = list(shape_of(x))
        shape[dim] = width
        return call.emit.broadcast(part(call, x, dim, first(size), 1), shape) if width else x

    return side


SIDES: dict[str, tuple[Side, Side]] = {
    "reflect": (_reflected(lambda width, size: 1), _reflected(lambda width, size: size - 1 - width)),
    "circular": (_moved(lambda width, size: size - width), _moved(lambda width, size: 0)),
    "replicate": (_repeated(lambda size: 0), _repeated(lambda size: size - 1)),
}
"""The content before and after a dimension, by the mode."""


def padded(mode: str) -> AtenRule:
    """Return the rule for a pad whose mode is in its name."""
    return lambda call: pad(call, mode)


def flip(call: Call) -> SSAValue:
    """Reverse the order of elements."""
    x = call.value("self")
    dims = sorted({dim % len(shape_of(x)) for dim in call["dims"]}) if shape_of(x) else []
    return call.emit.insert(nn.FlipOp(x, dims)) if dims else x


def roll(call: Call) -> SSAValue:
    """Roll by a number of places in some dimensions; without `dims`, in the flat tensor."""
    x, shifts = call.value("self"), call["shifts"]
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = call["dims"]
    if not dims:
        flat = call.emit.reshape(x, (math.prod(call.shape),))
        return call.emit.reshape(call.emit.insert(nn.RollOp(flat, shifts)), call.shape)
    total = [0] * len(call.shape)
    for dim, shift in zip([dims] if isinstance(dims, int) else dims, shifts, strict=True):
        total[dim] += shift
    return call.emit.insert(nn.RollOp(x, total))


def triangle(lower: bool) -> AtenRule:
    """Keep the elements on and below a diagonal, or on and above it."""

    def row(call: Call) -> SSAValue:
        diagonal = int(call["diagonal"])
        bounds = (None, diagonal) if lower else (diagonal, None)
        return call.emit.insert(nn.BandOp(call.value("self"), *bounds))

    return row


def every(call: Call, x: SSAValue, dim: int, start: int, step: int) -> SSAValue:
    """Every `step`-th index of a dimension from `start` on, as many as the result has: one of each group of `step`.

    The groups begin further in front where the last one would reach behind x.
    """
    shape, count = shape_of(x), call.shape[dim]
    first = max(0, min(start, shape[dim] - count * step))
    if start - first >= step:
        first = start
    missing = max(0, first + count * step - shape[dim])
    x = part(call, x, dim, first, count * step - missing)
    if missing:
        none = [0] * len(shape)
        x = call.emit.insert(nn.PadOp(x, none, [*none[:dim], missing, *none[dim + 1 :]]))
    x = call.emit.reshape(x, (*shape[:dim], count, step, *shape[dim + 1 :]))
    return call.emit.reshape(part(call, x, dim + 1, start - first, 1), call.shape)


def sliced(call: Call) -> SSAValue:
    """x[start:end:step]."""
    x = call.value("self")
    dim, step = dimension(call, x), call.arguments.get("step", 1)
    size = shape_of(x)[dim]
    start, end = (
        clamped(call.arguments.get(key), size, whole) for key, whole in (("start", 0), ("end", size))
    )
    if step == 1 or not call.shape[dim]:
        return part(call, x, dim, start, max(end - start, 0))
    return every(call, x, dim, start, step)


def repeat(call: Call) -> SSAValue:
    """Repeat the whole tensor a number of times in each dimension: a broadcast with one more dimension for each."""
    x = call.value("self")
    repeats = list(call["repeats"])
    shape = (*[1] * (len(repeats) - len(shape_of(x))), *shape_of(x))
    apart = [n for size in shape for n in (1, size)]
    wide = [n for count, size in zip(repeats, shape, strict=True) for n in (count, size)]
    return call.emit.reshape(widened(call, x, apart, wide), call.shape)


def widened(call: Call, x: SSAValue, apart: Sequence[int], wide: Sequence[int]) -> SSAValue:
    """Return the tensor `apart` repeated to `wide`, without the dimensions that have size 1 in both."""
    kept = [(a, b) for a, b in zip(apart, wide, strict=True) if (a, b) != (1, 1)]
    x = call.emit.reshape(x, [a for a, _ in kept])
    return call.emit.broadcast(x, [b for _, b in kept])


def repeat_interleave(call: Call) -> SSAValue:
    """Repeat each element a number of times along `dim`; without `dim`, of the flat tensor."""
    x, repeats = call.value("self"), int(call["repeats"])
    shape = shape_of(x) if call["dim"] is not None else (math.prod(shape_of(x)),)
    dim = (call["dim"] or 0) % max(len(shape), 1)
    apart = (*shape[: dim + 1], 1, *shape[dim + 1 :])
    wide = (*shape[: dim + 1], repeats, *shape[dim + 1 :])
    return call.emit.reshape(widened(call, x, apart, wide), call.shape)


def diagonal(call: Call) -> SSAValue:
    """A diagonal of two dimensions, as the last one."""
    x = call.value("self")
    rank = len(shape_of(x))
    first, second = call["dim1"] % rank, call["dim2"] % rank
    others = [d for d in range(rank) if d not in (first, second)]
    x = call.emit.transpose(x, [*others, first, second])
    *batch, _, columns = shape_of(x)
    offset, count = int(call["offset"]), call.shape[-1]
    start = offset if offset >= 0 else -offset * columns
    index = torch.arange(count, device="cpu") * (columns + 1) + start
    flat = call.emit.reshape(x, (*batch, math.prod(shape_of(x)[len(batch) :])))
    return taken(call, flat, index, len(batch))


def unfold(call: Call) -> SSAValue:
    """Windows of `size` along a dimension, one every `step`; a window is the last dimension of the result."""
    x = call.value("self")
    if not shape_of(x):
        if not call["size"]:
            raise Refused("windows of 0 elements")
        return call.emit.reshape(x, call.shape)
    dim: int = call["dimension"] % len(shape_of(x))
    size, step = int(call["size"]), int(call["step"])
    windows = torch.arange(call.shape[dim], device="cpu")[:, None] * step + torch.arange(size, device="cpu")
    found = call.emit.insert(nn.TakeOp(x, call.materialize(windows), dim))
    rank = len(shape_of(found))
    return call.emit.transpose(found, [d for d in range(rank) if d != dim + 1] + [dim + 1])


def order(call: Call, x: SSAValue, dim: int, count: int, descending: bool) -> tuple[SSAValue, SSAValue]:
    """Return the first `count` of each sorted row along `dim`, and their positions before sorting."""
    last, (turned, back) = len(shape_of(x)) - 1, with_last(x, dim)
    x = call.emit.transpose(x, turned)
    index = nn.order(call.emit.insert, x, count, descending)
    found = call.emit.insert(nn.GatherOp(x, index, last))
    return call.emit.transpose(found, back), call.emit.transpose(index, back)


def position_of_rank(call: Call, x: SSAValue, dim: int, rank: int) -> SSAValue:
    """Return the position of the element of each row along `dim` that `rank` others precede when it is sorted."""
    if nn.is_short(shape_of(x)[dim]):
        return part(call, order(call, x, dim, rank + 1, descending=False)[1], dim, rank, 1)
    turned, back = with_last(x, dim)
    index = call.emit.insert(nn.ArgsortOp(call.emit.transpose(x, turned), 1, first=rank))
    return call.emit.transpose(index, back)


def with_last(x: SSAValue, dim: int) -> tuple[list[int], list[int]]:
    """The order of dimensions of x in which `dim` is last, and the one that undoes it."""
    rank = len(shape_of(x))
    turned = [d for d in range(rank) if d != dim] + [dim]
    return turned, sorted(range(rank), key=turned.__getitem__)


def sort(call: Call) -> Value:
    """Return sorted values and their earlier positions; equal ones keep their order."""
    x = call.value("self")
    if not shape_of(x):
        return x, call.emit.constant(0, torch.int64)
    dim: int = call.arguments.get("dim", -1) % len(shape_of(x))
    return order(call, x, dim, shape_of(x)[dim], bool(call.arguments.get("descending", False)))


def argsort(call: Call) -> Value:
    """Return the positions of the elements of a sorted row before sorting."""
    found = sort(call)
    assert isinstance(found, tuple)
    return found[1]


def topk(call: Call) -> Value:
    """Return the `k` largest or smallest, sorted; among equal ones the first."""
    x = call.value("self")
    if not shape_of(x):
        return x, call.emit.constant(0, torch.int64)
    dim = dimension(call, x)
    return order(call, x, dim, int(call["k"]), bool(call["largest"]))


def kthvalue(call: Call) -> Value:
    """The k-th smallest along `dim` and its index."""
    x = call.value("self")
    if not shape_of(x):
        return x, call.emit.constant(0, torch.int64)
    dim = dimension(call, x)
    index = position_of_rank(call, x, dim, int(call["k"]) - 1)
    value = call.emit.insert(nn.GatherOp(x, index, dim))
    return tuple(
        call.emit.reshape(each, tuple(like.shape))
        for each, like in zip((value, index), call.expected, strict=True)
    )


def median(ignores_nan: bool) -> AtenRule:
    """Return the rule for the lower median: a NaN is the median of a row that has one, or is left out.

    Without `dim` it is that of all elements, and its gradient is spread over those that equal it, as torch does; that of an
    infinite one or a NaN goes to one of them.
    """

    def row(call: Call) -> Value:
        x, along = call.value("self"), "dim" in call.arguments
        if not shape_of(x):
            return (x, call.emit.constant(0, torch.int64)) if along else x
        whole = x if along else call.emit.reshape(x, (math.prod(shape_of(x)),))
        dim = dimension(call, whole) if along else 0
        index = median_index(call, whole, dim, ignores_nan)
        value = call.emit.insert(nn.GatherOp(whole, index, dim))
        if along:
            values, indices = (tuple(like.shape) for like in call.expected)
            return call.emit.reshape(value, values), call.emit.reshape(index, indices)
        if not is_float(x):
            return call.emit.reshape(value, ())
        return spread(call, whole, value)

    return row


def spread(call: Call, x: SSAValue, value: SSAValue) -> SSAValue:
    """The `value` of one element of the row `x`, with a gradient for all that equal it."""

    def make(name: str, *operands: SSAValue) -> SSAValue:
        return call.emit.insert(CLASSES[name](*operands))

    held = call.emit.insert(nn.DetachOp(value))
    others = call.of(-math.inf, call.dtype)
    all_equal = call.emit.insert(REDUCTIONS["amax"](make("where", make("eq", x, held), x, others), [0]))
    is_finite = make("eq", make("sub", held, held), call.of(0.0, call.dtype))
    one = [call.emit.reshape(each, ()) for each in (is_finite, all_equal, value)]
    return make("where", *one)


def median_index(call: Call, x: SSAValue, dim: int, ignores_nan: bool) -> SSAValue:
    """Where the lower median of each row along `dim` stands; NaNs are last in their order."""
    size = shape_of(x)[dim]
    x = call.emit.insert(nn.DetachOp(x)) if is_float(x) else x
    if not is_float(x):
        return position_of_rank(call, x, dim, (size - 1) // 2)

    def make(name: str, *operands: SSAValue, **parameters: float) -> SSAValue:
        return call.emit.insert(CLASSES[name](*operands, **parameters))

    if not ignores_nan and not nn.is_short(size):
        first_largest = call.emit.insert(REDUCTIONS["argmax"](x, [dim], True))
        largest = call.emit.insert(nn.GatherOp(x, first_largest, dim))
        middle = position_of_rank(call, x, dim, (size - 1) // 2)
        return make("where", make("ne", largest, largest), first_largest, middle)
    _, places = order(call, x, dim, size, descending=False)

    def whole(number: int) -> SSAValue:
        return call.of(number, torch.int64)

    nans = call.emit.insert(nn.SumOp(call.emit.cast(make("ne", x, x), torch.int64), [dim], keepdim=True))
    numbers = make("sub", whole(size), nans)
    if ignores_nan:
        middle = make("floor_divide", make("clamp", make("sub", numbers, whole(1)), min=0), whole(2))
    else:
        middle = make("where", make("eq", nans, whole(0)), whole((size - 1) // 2), numbers)
    return call.emit.insert(nn.GatherOp(places, middle, dim))
