"""The rows of `aten_table` that sample images at places between their elements: grids, antialiased and fractional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_windows import each, images, largest_of_rows, of_ranks
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Refused
from aicf_mlir.ir.tensor_op import shape_of

ZEROS, BORDER, REFLECTION = range(3)
"""torch's numbers for what a grid finds outside of the image."""

BILINEAR, NEAREST, BICUBIC = range(3)
"""torch's numbers for how a grid reads between elements."""

SHARPNESS = -0.75
"""The parameter of torch's cubic convolution."""

Tap = tuple[SSAValue, SSAValue | None]
"""Where an image is read in one dimension, a whole number, and the weight there; None is 1."""


class Numbers:
    """Arithmetic on values and numbers of one float type."""

    def __init__(self, call: Call, dtype: torch.dtype):
        self._call, self.dtype = call, dtype

    def __call__(self, name: str, *operands: Any) -> SSAValue:
        """The op `nn.<name>`; truths stay truths."""
        first = name == "where"
        values = [
            value if first and not place else self._call.of(value, self.dtype)
            for place, value in enumerate(operands)
        ]
        return self._call.emit.insert(CLASSES[name](*values))

    def both(self, one: SSAValue, other: SSAValue) -> SSAValue:
        """True if both are."""
        return self._call.emit.insert(CLASSES["bitwise_and"](one, other))

    def within(self, place: SSAValue, size: int) -> SSAValue:
        """True if a place is an element of `size`."""
        return self.both(self("ge", place, 0), self("le", place, size - 1))


def grid_sampler(call: Call) -> SSAValue:
    """The images at the places of a grid, from -1 to 1 in each dimension, the last dimension first."""
    x, grid = (call.of(call[name], call.wide_dtype) for name in ("input", "grid"))
    n, channels, *spatial = shape_of(x)
    size, rank = call.shape[2:], len(spatial)
    mode, outside = int(call["interpolation_mode"]), int(call["padding_mode"])
    points = n * math.prod(size)
    emit, numbers = call.emit, Numbers(call, call.wide_dtype)
    flat = emit.reshape(emit.transpose(x, (0, *range(2, rank + 2), 1)), (n * math.prod(spatial), channels))
    columns = emit.split(emit.reshape(grid, (points, rank)), 1, [1] * rank)
    taps = [
        taps_of(numbers, column, whole, mode, outside, bool(call["align_corners"]))
        for column, whole in zip(reversed(columns), spatial, strict=True)
    ]
    own_image = torch.arange(n, device="cpu").repeat_interleave(math.prod(size)).reshape(
        points, 1
    ) * math.prod(spatial)
    first = call.materialize(own_image)
    total: SSAValue | None = None
    for corner in product(*taps):
        part = read(call, numbers, flat, first, corner, spatial)
        total = part if total is None else numbers("add", total, part)
    assert total is not None
    total = emit.transpose(emit.reshape(total, (n, *size, channels)), (0, rank + 1, *range(1, rank + 1)))
    return emit.cast(total, call.dtype)


def read(
    call: Call,
    numbers: Numbers,
    flat: SSAValue,
    first: SSAValue,
    corner: Sequence[Tap],
    spatial: Sequence[int],
) -> SSAValue:
    """The elements of `flat`, a row for each, at one tap of each dimension; 0 where there is none."""
    emit = call.emit
    row, inside, weight = first, None, None
    stride = math.prod(spatial)
    for (place, own), whole in zip(corner, spatial, strict=True):
        stride //= whole
        holds = numbers.within(place, whole)
        inside = holds if inside is None else numbers.both(inside, holds)
        index = emit.cast(numbers("where", holds, place, 0), torch.int64)
        step = emit.insert(CLASSES["mul"](index, emit.constant(stride, torch.int64)))
        row = emit.insert(nn.AddOp(row, step))
        if own is not None:
            weight = own if weight is None else numbers("mul", weight, own)
    assert inside is not None
    count = shape_of(row)[0]
    found = emit.insert(nn.TakeOp(flat, emit.reshape(row, (count,)), 0))
    found = numbers("where", inside, found, 0)
    return found if weight is None else numbers("mul", found, weight)


def taps_of(
    numbers: Numbers, column: SSAValue, size: int, mode: int, outside: int, aligned: bool
) -> Sequence[Tap]:
    """Where a column of a grid reads a dimension of `size`, as whole numbers that may lie outside of it."""
    scaled = numbers("mul", numbers("add", column, 1), (size - 1 if aligned else size) / 2)
    place = scaled if aligned else numbers("sub", scaled, 0.5)
    if mode != BICUBIC:
        place = held(numbers, place, size, outside, aligned)
    if mode == NEAREST:
        return [(numbers("round", place), None)]
    first = numbers("floor", place)
    away = numbers("sub", place, first)
    if mode == BILINEAR:
        return [(first, numbers("sub", 1, away)), (numbers("add", first, 1), away)]
    return [
        (held(numbers, numbers("add", first, k - 1), size, outside, aligned), weight)
        for k, weight in enumerate(cubic(numbers, away))
    ]


def held(numbers: Numbers, place: SSAValue, size: int, outside: int, aligned: bool) -> SSAValue:
    """`place`, moved into the image as the padding says. Where it is moved to a border it has no gradient, as in torch."""
    if outside == REFLECTION:
        low, span = (0.0, size - 1.0) if aligned else (-0.5, float(size))
        if not span:
            return numbers("mul", place, 0)
        place = numbers("sub", place, low)
        place = numbers("where", numbers("lt", place, 0), numbers("neg", place), place)
        turns = numbers("floor", numbers("div", place, span))
        rest = numbers("sub", place, numbers("mul", turns, span))
        even = numbers("eq", numbers("remainder", turns, 2), 0)
        place = numbers("add", numbers("where", even, rest, numbers("sub", span, rest)), low)
    if outside != ZEROS:
        place = numbers("where", numbers("le", place, 0), 0, place)
        place = numbers("where", numbers("ge", place, size - 1), size - 1, place)
    return place


def cubic(numbers: Numbers, away: SSAValue) -> Sequence[SSAValue]:
    """The weights of the four elements around a place, `away` behind the second."""

    def near(x: SSAValue) -> SSAValue:  # up to 1: ((a + 2) x - (a + 3)) x² + 1
        inner = numbers("sub", numbers("mul", x, SHARPNESS + 2), SHARPNESS + 3)
        return numbers("add", numbers("mul", inner, numbers("mul", x, x)), 1)

    def far(x: SSAValue) -> SSAValue:  # from 1 to 2: ((a x - 5a) x + 8a) x - 4a
        inner = numbers("sub", numbers("mul", x, SHARPNESS), 5 * SHARPNESS)
        inner = numbers("add", numbers("mul", inner, x), 8 * SHARPNESS)
        return numbers("sub", numbers("mul", inner, x), 4 * SHARPNESS)

    behind = numbers("sub", 1, away)
    return far(numbers("add", away, 1)), near(away), near(behind), far(numbers("add", behind, 1))


LARGEST = 1024
"""The largest size that is multiplied by a matrix of all its places; of more torch's own rule reads the few that count."""


def resized(name: str, rank: int = 2) -> AtenRule:
    """Return the rule for resizing by a product with a matrix for each dimension, which torch's own op makes of unit vectors.

    Its gradient is the product with the other side. Reading places would make that a scatter of single elements.
    """

    def row(call: Call) -> SSAValue:
        x = call.value("input" if "input" in call.arguments else "self")
        size, wide, spatial = call.shape[2:], call.wide_dtype, shape_of(x)[2:]
        factors = call.arguments.get("scale_factors")
        scales = ("scales",) if rank == 1 else tuple(f"scales_{letter}" for letter in "dhw"[3 - rank :])
        factors = factors or [call.arguments.get(each) for each in scales]
        if max(spatial) > LARGEST or 0 in call.shape or not call.dtype.is_floating_point:
            raise Refused(f"it is no resize of floats of {LARGEST} places at most in each dimension")
        x = call.emit.cast(x, wide)
        for d, (own, factor) in enumerate(zip(size, factors, strict=True)):
            matrix = matrix_of(name, spatial[d], own, bool(call["align_corners"]), factor)
            order = [*range(rank + 2)]
            order[-1], order[2 + d] = order[2 + d], order[-1]
            rows = call.emit.transpose(x, order)
            *lead, _ = shape_of(rows)
            made = call.emit.reshape(rows, (math.prod(lead), spatial[d]))
            made = call.emit.insert(nn.MatmulOp(made, call.materialize(matrix.to(wide))))
            x = call.emit.transpose(call.emit.reshape(made, (*lead, own)), order)
        return call.emit.cast(x, call.dtype)

    return row


def matrix_of(name: str, whole: int, own: int, align_corners: bool, factor: float | None) -> torch.Tensor:
    """Return [whole, own]: how much of each place is in each of the new ones."""
    op = getattr(torch.ops.aten, name).default
    units = torch.eye(whole, dtype=torch.float64, device="cpu")
    if name == "upsample_linear1d":
        return op(units[None], (own,), align_corners, factor)[0]
    units = units[None, :, :, None].repeat(1, 1, 1, 2)  # of width 1 torch mistakes its layout
    return op(units, (own, 2), align_corners, factor, None)[0, :, :, 0]


def fractional_max_pool(rank: int) -> AtenRule:
    """Return the rule for the largest of windows of one size, which begin where a random number of each channel says, and its
    number among the elements of its channel.
    """

    def row(call: Call) -> Value:
        x, emit = images(call, rank), call.emit
        shape, kernel = tuple(call.expected[0].shape), each(call["kernel_size"], rank)
        n, c, *spatial = shape_of(x)
        size, samples = shape[-rank:], call.value("random_samples")
        rest = shape_of(samples)[0] - n  # torch takes more of them than there are images
        samples = emit.insert(nn.PadOp(samples, [0] * 3, [-rest, 0, 0])) if rest else samples
        columns = emit.split(emit.reshape(samples, (n * c, rank)), 1, [1] * rank)
        numbers = Numbers(call, call.wide(call.result_dtype))
        index = emit.constant(0, torch.int64)
        for d, column in enumerate(columns if rank == 3 else reversed(columns)):
            starts = emit.cast(starts_of(call, numbers, column, spatial[d], size[d], kernel[d]), torch.int64)
            own = [1] * (2 * rank)
            own[d] = size[d]
            ahead = torch.arange(kernel[d], device="cpu").reshape(kernel[d], *[1] * (rank - d - 1))
            places = emit.insert(nn.AddOp(emit.reshape(starts, (n * c, *own)), call.materialize(ahead)))
            stride = emit.constant(math.prod(spatial[d + 1 :]), torch.int64)
            index = emit.insert(nn.AddOp(index, emit.insert(CLASSES["mul"](places, stride))))
        count, positions = math.prod(size), math.prod(kernel)
        index = emit.reshape(index, (n * c, count * positions))
        taken = emit.insert(nn.GatherOp(emit.reshape(x, (n * c, math.prod(spatial))), index, 1))
        found, place = largest_of_rows(call, emit.reshape(taken, (n * c * count, positions)))
        index = emit.insert(nn.GatherOp(emit.reshape(index, (n * c * count, positions)), place, 1))
        return emit.reshape(found, shape), emit.reshape(index, shape)

    return row


def starts_of(
    call: Call, numbers: Numbers, sample: SSAValue, whole: int, count: int, kernel: int
) -> SSAValue:
    """Where `count` windows of a dimension begin; the last one ends with it."""
    last = call.emit.broadcast(call.of(float(whole - kernel), numbers.dtype), (shape_of(sample)[0], 1))
    if count == 1:
        return last
    steps = call.materialize(torch.arange(count - 1, device="cpu").to(numbers.dtype))
    pace = torch.tensor(float(whole - kernel), dtype=numbers.dtype, device="cpu") / (count - 1)
    first = numbers("trunc", numbers("mul", sample, pace.item()))
    starts = numbers("trunc", numbers("mul", numbers("add", steps, sample), pace.item()))
    starts = numbers("sub", starts, first)
    starts = numbers("where", numbers.within(starts, whole - kernel + 1), starts, 0)  # of a NaN too
    return call.emit.insert(nn.ConcatOp([starts, last], 1))


LINEAR: dict[str, str] = dict.fromkeys(
    ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), "upsample_linear1d"
)
"""What is linear in each dimension."""
RESIZES: dict[str, int] = {
    **{f"_upsample_{kind}2d_aa": 2 for kind in ("bilinear", "bicubic", "lanczos")},
    **{name: rank for rank, name in enumerate(LINEAR, 1)},
    "upsample_bicubic2d": 2,
}

ROWS: dict[str, AtenRule] = {
    **{
        f"aten.{name}.default": grid_sampler
        for name in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
    },
    **{
        f"aten.{name}.{form}": resized(LINEAR.get(name, name), rank)
        for name, rank in RESIZES.items()
        for form in ("default", "vec")
    },
    **of_ranks("fractional_max_pool{}d", fractional_max_pool, (2, 3)),
}
"""The rows by op."""
