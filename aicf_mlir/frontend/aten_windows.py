"""The rows of `aten_table` over windows: a pool is a reduction of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn import Convolved, Windows
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.unfolded_windows import folded, unfolded
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.tensor_op import shape_of


def convolution(call: Call) -> SSAValue:
    """Convolve in any rank, stride, padding, dilation and groups."""
    return convolved(call, bool(call["transposed"]))


def plain_convolution(call: Call) -> SSAValue:
    """Convolve, as the functions of `torch.nn.functional` do: also one image alone."""
    return convolved(call, False)


def transposed_convolution(call: Call) -> SSAValue:
    """The gradient of a convolution with respect to its input, as a function of `torch.nn.functional`."""
    return convolved(call, True)


def convolved(call: Call, transposed: bool) -> SSAValue:
    """A convolution, or the gradient of one with respect to its input, with the bias if there is one."""
    x, w = call.value("input"), call.value("weight")
    spatial, shape = shape_of(w)[2:], call.shape
    if alone := len(shape_of(x)) == len(spatial) + 1:
        x, shape = call.emit.reshape(x, (1, *shape_of(x))), (1, *shape)
    stride, dilation = (each(call[name], len(spatial)) for name in ("stride", "dilation"))
    low = low_padding(call["padding"], spatial, dilation)
    windows = Windows.of(spatial, stride, dilation, low)
    geometry = Convolved(windows.stride, windows.dilation, windows.low, int(call["groups"]))
    bias = None if call["bias"] is None else call.value("bias")
    if 0 in shape or 0 in shape_of(x):
        result = call.emit.depending(call.emit.constant(0.0, call.dtype, shape), x, w)
    elif transposed:
        result = call.emit.insert(nn.ConvolutionInputGradOp(x, w, geometry, shape[2:]))
    else:
        result, bias = call.emit.insert(nn.ConvolutionOp(x, w, geometry, shape[2:], bias)), None
    if bias is not None:
        bias = call.emit.reshape(bias, (shape[1], *[1] * len(spatial)))
        result = call.emit.insert(nn.AddOp(result, bias))
    return call.emit.reshape(result, call.shape) if alone else result


def low_padding(
    given: str | Sequence[int], kernel: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """The places added before each dimension: those given, none for "valid", the smaller half of what "same" needs."""
    if isinstance(given, str):
        same = given == "same"
        return tuple(far * (size - 1) // 2 if same else 0 for size, far in zip(kernel, dilation, strict=True))
    return each(given, len(kernel))


def im2col(call: Call) -> SSAValue:
    """[N, C, H, W] -> [N, C * positions, windows]."""
    x, windows = call.value("self"), windows_of(call, 2)
    *batch, c, _, _ = shape_of(x)
    sizes = [
        (size + 2 * low - dilation * (kernel - 1) - 1) // stride + 1
        for size, low, dilation, kernel, stride in zip(
            shape_of(x)[-2:], windows.low, windows.dilation, windows.kernel, windows.stride, strict=True
        )
    ]
    x = call.emit.reshape(x, (math.prod(batch), c, *shape_of(x)[-2:]))
    return call.emit.reshape(
        call.emit.transpose(unfolded(call.emit.insert, x, windows, sizes), (3, 0, 1, 2, 4, 5)), call.shape
    )


def col2im(call: Call) -> SSAValue:
    """[N, C * positions, windows] -> [N, C, H, W]."""
    x, windows, size = call.value("self"), windows_of(call, 2), [int(n) for n in call["output_size"]]
    counts = [
        (whole + 2 * low - dilation * (kernel - 1) - 1) // stride + 1
        for whole, low, dilation, kernel, stride in zip(
            size, windows.low, windows.dilation, windows.kernel, windows.stride, strict=True
        )
    ]
    n, c = math.prod(shape_of(x)[:-2]), call.shape[-3]
    x = call.emit.transpose(call.emit.reshape(x, (n, c, *windows.kernel, *counts)), (1, 2, 3, 0, 4, 5))
    return call.emit.reshape(folded(call.emit.insert, x, windows, size), call.shape)


def unfold_backward(call: Call) -> SSAValue:
    """The sum of overlapping windows along a dimension, one every `step`: the transpose of `unfold`."""
    rank = len(call.shape)
    x, dim = call.value("grad_in"), int(call["dim"]) % rank
    others = [d for d in range(rank) if d != dim]
    sizes = [call.shape[d] for d in others]
    x = call.emit.transpose(x, [rank, *others, dim])
    size, *_, count = shape_of(x)
    windows = Windows.of((size,), (int(call["step"]),))
    x = call.emit.reshape(x, (1, size, math.prod(sizes), count))
    whole = call.emit.reshape(
        folded(call.emit.insert, x, windows, [call.shape[dim]]), (*sizes, call.shape[dim])
    )
    return call.emit.transpose(whole, [(*others, dim).index(d) for d in range(rank)])


def each(given: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """A number for each dimension, from one or all of them."""
    numbers = [int(given)] if isinstance(given, int) else [int(n) for n in given or ()]
    return tuple(numbers * rank if len(numbers) == 1 else numbers)


def windows_of(call: Call, rank: int) -> Windows:
    """Return the windows that a pool is called with; without strides, adjacent ones."""
    kernel = each(call["kernel_size"], rank)
    stride, dilation, low = (
        each(call.arguments.get(name), rank) for name in ("stride", "dilation", "padding")
    )
    return Windows.of(kernel, stride or kernel, dilation or None, low or None)


def images(call: Call, rank: int) -> SSAValue:
    """The operand as [N, C, *spatial]."""
    x = call.value("self")
    shape = shape_of(x)
    return call.emit.reshape(x, (1, *shape)) if len(shape) == rank + 1 else x


def max_pool(rank: int) -> AtenRule:
    """Return the rule for the largest of each window, and if requested its number among the elements of its channel."""

    def row(call: Call) -> Value:
        return largest(call, images(call, rank), windows_of(call, rank))

    return row


def largest(call: Call, x: SSAValue, windows: Windows) -> Value:
    """Return the values of windows of one size, or values and indices if the call has two results."""
    several = not isinstance(call.expected, torch.Tensor)
    shape = tuple(call.expected[0].shape) if several else call.shape
    found = call.emit.insert(nn.WindowMaxOp(x, windows, shape[-windows.rank :]))
    if not several:
        return call.emit.reshape(found, shape)
    tap = call.emit.insert(nn.WindowTapOp(x, found, windows))
    index = call.emit.insert(nn.WindowIndexOp(tap, windows, shape_of(x)[2:]))
    return call.emit.reshape(found, shape), call.emit.reshape(index, shape)


def avg_pool(rank: int) -> AtenRule:
    """Return the rule for the mean of each window, with torch's rules for counting at the borders."""

    def row(call: Call) -> SSAValue:
        x, windows = images(call, rank), windows_of(call, rank)
        size, spatial = call.shape[-rank:], shape_of(x)[2:]
        x = call.emit.cast(x, call.wide_dtype)
        total = call.emit.insert(nn.WindowSumOp(x, None, windows, size))
        override = call.arguments.get("divisor_override")
        counts = torch.ones((), dtype=torch.float64, device="cpu")
        for d in range(rank):
            start = torch.arange(size[d], device="cpu") * windows.stride[d] - windows.low[d]
            end = (start + windows.kernel[d]).clamp(max=spatial[d] + windows.low[d])
            if not call["count_include_pad"]:
                start, end = start.clamp(min=0), end.clamp(max=spatial[d])
            counts = counts[..., None] * (end - start)
        if override is not None:
            counts = torch.full((), override, device="cpu")
        return call.emit.cast(call.emit.reshape(divided(call, total, counts), call.shape), call.dtype)

    return row


def divided(call: Call, total: SSAValue, counts: torch.Tensor) -> SSAValue:
    """Sums divided by known counts, which are often one number."""
    dtype = call.wide_dtype
    if counts.numel() and bool((counts == counts.flatten()[0]).all()):
        by = call.emit.constant(float(counts.flatten()[0]), dtype)
    else:
        by = call.materialize(counts.to(dtype))
    return call.emit.insert(CLASSES["div"](total, by))


def nearest(rank: int) -> AtenRule:
    """Return the rule for an upsampling by whole numbers: each element in windows of its own, as large as the step between
    them. Others are for torch to take apart.
    """

    def row(call: Call) -> SSAValue:
        x, size = call.value("input" if "input" in call.arguments else "self"), call.shape[2:]
        spatial = shape_of(x)[2:]
        factors = [
            new // own if own and new % own == 0 else 0 for new, own in zip(size, spatial, strict=True)
        ]
        given = call.arguments.get("scale_factors") or [
            call.arguments.get(name) for name in ("scales", "scales_d", "scales_h", "scales_w")
        ]
        exact = [scale for scale in given if scale is not None]
        if 0 in factors or not call.dtype.is_floating_point or (exact and exact != factors):
            raise Refused("it is no upsampling of floats by whole numbers")
        windows = Windows.of(factors, factors)
        return call.emit.insert(nn.WindowSumOp(x, None, windows.transposed, size))

    return row


def adaptive_avg_pool(rank: int) -> AtenRule:
    """Return the rule for the mean of each of `output_size` parts, which overlap if they do not divide the tensor."""

    def row(call: Call) -> SSAValue:
        x, size = images(call, rank), call.shape[-rank:]
        n, c, *spatial = shape_of(x)
        if set(size) == {1} and 0 not in spatial:
            whole = nn.MeanOp(x, range(2, rank + 2), keepdim=True)
            return call.emit.reshape(call.emit.insert(whole), call.shape)
        if divides(size, spatial):
            pieces = [each for own, whole in zip(size, spatial, strict=True) for each in (own, whole // own)]
            cut = call.emit.reshape(x, (n, c, *pieces))
            mean = nn.MeanOp(cut, list(range(3, 2 * rank + 2, 2)))
            return call.emit.reshape(call.emit.insert(mean), call.shape)
        x = call.emit.cast(x, call.wide_dtype)
        for d in range(rank):
            places, counts = parts(spatial[d], size[d])
            behind = [1] * (rank - d - 1)
            x = call.emit.insert(nn.TakeOp(x, call.materialize(places.clamp(min=0)), 2 + d))
            inside = call.materialize((places >= 0).reshape(*places.shape, *behind))
            x = call.emit.insert(CLASSES["where"](inside, x, call.emit.constant(0.0, call.wide_dtype)))
            total = call.emit.insert(nn.SumOp(x, [3 + d]))
            x = divided(call, total, counts.reshape(-1, *behind))
        return call.emit.cast(call.emit.reshape(x, call.shape), call.dtype)

    return row


def adaptive_max_pool(rank: int) -> AtenRule:
    """Return the rule for the largest of each of `output_size` parts, and its number among the elements of its channel."""

    def row(call: Call) -> Value:
        x, shape = images(call, rank), tuple(call.expected[0].shape)
        n, c, *spatial = shape_of(x)
        size = shape[-rank:]
        if divides(size, spatial):
            return largest(
                call, x, Windows.of(kernel := [a // b for a, b in zip(spatial, size, strict=True)], kernel)
            )
        numbers, inside = (
            torch.zeros((), dtype=torch.int64, device="cpu"),
            torch.ones((), dtype=torch.bool, device="cpu"),
        )
        for d in range(rank):
            places, _ = parts(spatial[d], size[d])
            x = call.emit.insert(nn.TakeOp(x, call.materialize(places.clamp(min=0)), 2 + 2 * d))
            numbers = numbers[..., None, None] * spatial[d] + places.clamp(min=0)
            inside = inside[..., None, None] & (places >= 0)
        order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
        x = call.emit.transpose(x, (0, 1, *(d + 2 for d in order)))
        x = call.emit.reshape(x, (n, c, math.prod(size), numbers.numel() // math.prod(size)))
        numbers, inside = (each.permute(order).reshape(math.prod(size), -1) for each in (numbers, inside))
        none = call.emit.constant(-math.inf, call.result_dtype)
        x = call.emit.insert(CLASSES["where"](call.materialize(inside), x, none))
        found, index = largest_of_rows(call, x)
        wide = call.emit.broadcast(call.materialize(numbers), shape_of(x))
        index = call.emit.insert(nn.GatherOp(wide, index, 3))
        return call.emit.reshape(found, shape), call.emit.reshape(index, shape)

    return row


def largest_of_rows(call: Call, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Return the largest along the last dimension, which stays, and its index: of equal ones the first, of NaNs the last."""
    dim = len(shape_of(x)) - 1
    places = call.materialize(torch.arange(shape_of(x)[dim], device="cpu"))
    none, first = (call.materialize(torch.tensor(number, device="cpu")) for number in (-1, 0))
    is_nan = call.emit.insert(CLASSES["isnan"](x))
    found = nn.MaxWithIndexOp(x, dim, keepdim=True)
    last = nn.MaxWithIndexOp(call.emit.insert(CLASSES["where"](is_nan, places, none)), dim, keepdim=True)
    for op in (found, last):
        call.emit.insert_all(op)
    has_nan = call.emit.insert(CLASSES["ge"](last.values, first))
    index = call.emit.insert(CLASSES["where"](has_nan, last.values, found.indices))
    is_it = call.emit.insert(CLASSES["eq"](places, index))
    alone = call.emit.insert(CLASSES["where"](is_it, x, call.emit.constant(0.0, call.result_dtype)))
    return call.emit.insert(nn.SumOp(alone, [dim], keepdim=True)), index


def divides(size: Sequence[int], spatial: Sequence[int]) -> bool:
    """True if all parts are equal and do not overlap."""
    return all(own and whole % own == 0 for own, whole in zip(size, spatial, strict=True))


def parts(whole: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the elements of each of `count` parts, padded with -1, and their numbers."""
    starts = [i * whole // count for i in range(count)]
    ends = [-(-(i + 1) * whole // count) for i in range(count)]
    longest = max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
    places = torch.tensor(starts, dtype=torch.int64, device="cpu")[:, None] + torch.arange(
        longest, device="cpu"
    )
    return places.where(places < torch.tensor(ends, device="cpu")[:, None], -1), torch.tensor(
        ends, device="cpu"
    ) - torch.tensor(starts, device="cpu")


def of_ranks(
    name: str, row: Callable[[int], AtenRule], ranks: Sequence[int] = (1, 2, 3)
) -> dict[str, AtenRule]:
    """Return a row for each rank, which replaces `{}` in the name."""
    return {f"aten.{name.format(rank)}.default": row(rank) for rank in ranks}


ROWS: dict[str, AtenRule] = {
    "aten.convolution.default": convolution,
    **{
        f"aten.conv{rank}d.{overload}": plain_convolution
        for rank in (1, 2, 3)
        for overload in ("default", "padding")
    },
    **{
        f"aten.conv_transpose{name}": transposed_convolution
        for name in ("1d.default", "2d.input", "3d.input")
    },
    "aten._convolution.default": convolution,
    "aten.im2col.default": im2col,
    "aten.col2im.default": col2im,
    "aten.unfold_backward.default": unfold_backward,
    **of_ranks("max_pool{}d", max_pool),
    **of_ranks("max_pool{}d_with_indices", max_pool),
    **of_ranks("avg_pool{}d", avg_pool),
    **{
        f"aten.{name}{rank}d.{form}": nearest(rank)
        for name in ("upsample_nearest", "_upsample_nearest_exact")
        for rank in (1, 2, 3)
        for form in ("default", "vec")
    },
    **of_ranks("adaptive_avg_pool{}d", adaptive_avg_pool),
    **of_ranks("_adaptive_avg_pool{}d", adaptive_avg_pool, (2, 3)),
    **of_ranks("adaptive_max_pool{}d", adaptive_max_pool),
}
"""The rows by op."""
