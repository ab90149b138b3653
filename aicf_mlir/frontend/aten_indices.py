"""Indices as torch takes them: known while tracing or computed, negative or not, one or several dimensions at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from xdsl.dialects.builtin import i64
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.reductions import REDUCTIONS
from aicf_mlir.frontend.call import Call
from aicf_mlir.frontend.refused import Forbidden, Refused
from aicf_mlir.ir.tensor_op import element_type, shape_of

Known: TypeAlias = SSAValue | torch.Tensor
"""A tensor of the step, or one known while tracing."""

MOVES = (nn.ReshapeOp, nn.BroadcastToOp, nn.TransposeOp, nn.SplitOp)
"""Ops whose results have elements of their operand, and no others."""

SPARSE = 8
"""The most slices of a tensor for each that a known index names, for which the index has an inverse."""

MASK = "a boolean mask as an index, whose result has a shape that depends on data; use torch.where or a product with the mask"


def shape_of_index(index: Known) -> tuple[int, ...]:
    """The shape of an index."""
    return tuple(index.shape) if isinstance(index, torch.Tensor) else shape_of(index)


def is_mask(index: Known) -> bool:
    """True if it is of booleans, or of bytes, which older programs use for them."""
    if isinstance(index, torch.Tensor):
        return index.dtype in (torch.bool, torch.uint8)
    return str(element_type(index)) == "i1"


def index_below(call: Call, index: Known, size: int, wraps: bool = False) -> SSAValue | torch.Tensor:
    """Return `index` in i64 and in 0..size-1: tested here, or checked in each step; with `wraps` from -size on, as in
    x[-1].
    """
    if is_mask(index):
        raise Forbidden(MASK)
    if isinstance(index, torch.Tensor):
        return _known_below(index, size, wraps)
    if element_type(index) != i64:
        index = call.emit.cast(index, torch.int64)
    if never_reaches(index, size):
        return index
    if (known := call.emit.checked.get((index, size, wraps))) is not None:
        return known
    given = index
    if wraps:
        below = call.emit.insert(CLASSES["lt"](index, call.emit.constant(0, torch.int64)))
        moved = call.emit.insert(CLASSES["add"](index, call.emit.constant(size, torch.int64)))
        index = call.emit.insert(CLASSES["where"](below, moved, index))
    if math.prod(shape_of(index)):
        call.emit.check_index(index, max(size, 1), None)
    call.emit.checked[given, size, wraps] = index
    return index


def _known_below(index: torch.Tensor, size: int, wraps: bool) -> torch.Tensor:
    index = index.to(torch.int64)
    lowest = -size if wraps else 0
    if index.numel() and not (int(index.min()) >= lowest and int(index.max()) < size):
        outside = index[(index < lowest) | (index >= size)].flatten()[0]
        raise Forbidden(f"an index of {int(outside)}, which is out of bounds for a dimension of size {size}")
    return torch.where(index < 0, index + size, index)


def never_reaches(index: SSAValue, size: int) -> bool:
    """True if the op that made it gives numbers in 0..size-1 only."""
    while isinstance(op := index.owner, Operation):
        match op:
            case nn.InversePermutationOp():
                return shape_of(op.ranks)[op.dim.value.data] <= size
            case nn.MaxWithIndexOp() | nn.MinWithIndexOp():
                return shape_of(op.x)[op.dim.value.data] <= size
            case _ if isinstance(op, (REDUCTIONS["argmax"], REDUCTIONS["argmin"])):
                return op.reduced_count() <= size
            case _ if isinstance(op, MOVES):
                index = op.operands[0]
            case _:
                return False
    return False


def value_of(call: Call, index: Known) -> SSAValue:
    """An index as a value of the step."""
    return call.materialize(index) if isinstance(index, torch.Tensor) else index


def taken(call: Call, x: SSAValue, index: Known, dim: int) -> SSAValue:
    """The slices of `x` along `dim` at the index; their gradient needs no sum where it is known to name none twice."""
    inverse, size = None, shape_of(x)[dim]
    if isinstance(index, torch.Tensor) and call.carries_gradient and size <= SPARSE * index.numel():
        names = index.flatten()
        numbers = torch.arange(names.numel(), device="cpu")
        places = torch.full((size,), -1, dtype=torch.int64, device="cpu")
        places[names] = numbers
        if torch.equal(places[names], numbers):  # no name twice
            inverse = call.materialize(places)
    return call.emit.insert(nn.TakeOp(x, value_of(call, index), dim, inverse))


@dataclass(frozen=True)
class Several:
    """Indices of some dimensions together, as one index of these as one dimension."""

    dims: tuple[int, ...]
    """The dimensions of the indexed tensor, sorted."""
    index: Known
    size: int
    """The size of the one dimension."""

    @property
    def adjacent(self) -> bool:
        """True if the indexed dimensions are adjacent: then the result has the index in their place, else in front."""
        return self.dims == tuple(range(self.dims[0], self.dims[0] + len(self.dims)))


def several(call: Call, x: SSAValue, indices: Sequence[Any]) -> Several:
    """Read the argument `indices` of index and index_put: a tensor for each dimension that is indexed, else None."""
    shape = shape_of(x)
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not given:
        raise Refused("no index at all")
    dims = tuple(dim for dim, _ in given)
    wide = nn.broadcast_shapes(*(shape_of_index(index) for _, index in given))
    inside = [index_below(call, index, shape[dim], wraps=True) for dim, index in given]
    together: Known = inside[0]
    for dim, index in zip(dims[1:], inside[1:], strict=True):
        together = _combined(call, together, shape[dim], index)
    if shape_of_index(together) != wide:
        together = value_of(call, together)
        together = call.emit.broadcast(together, wide)
    return Several(dims, together, math.prod(shape[dim] for dim in dims))


def _combined(call: Call, outer: Known, size: int, inner: Known) -> Known:
    """The product outer * size, plus inner."""
    if isinstance(outer, torch.Tensor) and isinstance(inner, torch.Tensor):
        return outer * size + inner
    count = call.emit.constant(size, torch.int64)
    first = call.emit.insert(CLASSES["mul"](value_of(call, outer), count))
    return call.emit.insert(CLASSES["add"](first, value_of(call, inner)))


def of_slices(index: Known, dim: int, shape: Sequence[int]) -> Known | None:
    """Return the vector that the index of a gather from `shape` repeats, if it names whole slices along `dim`."""
    own = shape_of_index(index)
    if (*own[:dim], *own[dim + 1 :]) != (*shape[:dim], *shape[dim + 1 :]):
        return None
    if isinstance(index, torch.Tensor):
        first = index[tuple(slice(None) if d == dim else slice(1) for d in range(index.ndim))]
        return first.reshape(-1) if bool((index == first).all()) else None
    op = index.owner
    if not isinstance(op, nn.BroadcastToOp) or len(shape_of(op.x)) != len(own):
        return None
    source = shape_of(op.x)
    others = [size for d, size in enumerate(source) if d != dim]
    return op.x if source[dim] == own[dim] and all(size == 1 for size in others) else None
