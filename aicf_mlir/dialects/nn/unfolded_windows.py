"""Windows as tensors of their own: by nn.unfold and nn.fold, or by a transposition where the windows are the tensor cut up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.shape import ReshapeOp, TransposeOp
from aicf_mlir.dialects.nn.window_relation import Windows
from aicf_mlir.dialects.nn.windows import FoldOp, UnfoldOp
from aicf_mlir.ir.tensor_op import shape_of

Insert = Callable[[ValueOp], SSAValue]
"""Inserts an op and returns its result."""


def reshaped(insert: Insert, x: SSAValue, shape: Sequence[int]) -> SSAValue:
    """X under another shape; itself if it has that one."""
    return x if shape_of(x) == tuple(shape) else insert(ReshapeOp(x, shape))


def images_first(insert: Insert, x: SSAValue) -> SSAValue:
    """The first two dimensions swapped, by a reshape if one of them is 1."""
    first, second, *rest = shape_of(x)
    if 1 in (first, second):
        return reshaped(insert, x, (second, first, *rest))
    return insert(TransposeOp(x, (1, 0, *range(2, len(rest) + 2))))


def exchanged(insert: Insert, w: SSAValue, channels: int) -> SSAValue:
    """Filters [F, own, *kernel] as they sum results in the place of channels: [C, filters of a group, *kernel]."""
    filters, own, *kernel = shape_of(w)
    groups = channels // own
    each = filters // groups
    if each == own == 1:
        return w
    cut = reshaped(insert, w, (groups, each, own, *kernel))
    turned = insert(TransposeOp(cut, (0, 2, 1, *range(3, len(kernel) + 3))))
    return reshaped(insert, turned, (channels, each, *kernel))


def unfolded(insert: Insert, x: SSAValue, windows: Windows, size: Sequence[int]) -> SSAValue:
    """The windows of x[N, C, *spatial], as [C, *kernel, N, *size]."""
    n, c, *spatial = shape_of(x)
    rank = windows.rank
    if not tiles(windows, spatial, size):
        return insert(UnfoldOp(x, windows, size))
    if windows.kernel == (1,) * rank:
        return reshaped(insert, images_first(insert, x), (c, *windows.kernel, n, *size))
    pieces = [each for pair in zip(size, windows.kernel, strict=True) for each in pair]
    cut = reshaped(insert, x, (n, c, *pieces))
    return insert(TransposeOp(cut, (1, *range(3, 2 * rank + 2, 2), 0, *range(2, 2 * rank + 2, 2))))


def folded(insert: Insert, x: SSAValue, windows: Windows, size: Sequence[int]) -> SSAValue:
    """The reverse of `unfolded`, added where windows overlap."""
    rank = windows.rank
    c, n, counts = shape_of(x)[0], shape_of(x)[rank + 1], shape_of(x)[rank + 2 :]
    if not tiles(windows, size, counts):
        return insert(FoldOp(x, windows, size))
    order = [d for pair in zip(range(rank + 2, 2 * rank + 2), range(1, rank + 1), strict=True) for d in pair]
    return reshaped(insert, insert(TransposeOp(x, (rank + 1, 0, *order))), (n, c, *size))


def tiles(windows: Windows, sizes: Sequence[int], counts: Sequence[int]) -> bool:
    """True if the windows are the tensor cut into pieces, each element in one of them."""
    rank = windows.rank
    plain = windows.low == (0,) * rank and windows.dilation == windows.spread == (1,) * rank
    whole = all(n * k == size for n, k, size in zip(counts, windows.kernel, sizes, strict=True))
    return plain and windows.stride == windows.kernel and whole
