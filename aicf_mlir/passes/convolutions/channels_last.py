"""Images as [N, spatial, C] from one convolution of a library to the next, and through what does not mind.

A value that has been [N, C, spatial] is followed by its other form. An op that can compute with the other form does; any other op
reads the transposition back. Those that nothing reads are erased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.broadcasting import ReductionOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.convolutions import MOST_DIMS, ConvolvingOp
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.dialects.nn.normalization import NormGradOp, NormOp
from aicf_mlir.dialects.nn.pointwise import PointwiseOp
from aicf_mlir.dialects.nn.unfolded_windows import reshaped
from aicf_mlir.dialects.nn.windows import WindowedOp
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.properties import int_attr, ints_attr, is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.convolutions.few_channels import FewChannels

WINDOWS = ("kernel", "stride", "dilation", "low", "spread", "size")
"""The numbers of a window in each direction."""


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation from [N, C, spatial]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation back."""
    return (0, rank - 1, *range(1, rank - 1))


def permuted(values: Sequence[int], perm: Sequence[int]) -> tuple[int, ...]:
    """The values in the order of `perm`."""
    return tuple(values[d] for d in perm)


class ChannelsLast:
    """Rewrites one block. `moving` are the convolutions that are to be so."""

    def __init__(self, moving: Container[Operation]):
        self._moving = moving
        self._last: dict[SSAValue, SSAValue] = {}
        self._ranked: dict[tuple[SSAValue, int], SSAValue] = {}
        self._rows: dict[SSAValue, Rows] = {}
        """Values that are groups of channels, and the images that they are of."""
        self._few = FewChannels()
        self._emitter: Emitter
        self._back: list[SSAValue] = []

    def apply(self, block: Block) -> None:
        """Rewrite the block."""
        for op in list(block.ops):
            self._emitter = Emitter(InsertPoint.before(op), op.location)
            if isinstance(op, ConvolvingOp):
                if not is_true(op.channels_last) and op in self._moving:
                    self._convolve(op)
            elif isinstance(op, nn.TransposeOp):
                self._transpose(op)
            elif any(operand in self._last for operand in op.operands):
                self._carry(op)
            elif any(operand in self._rows for operand in op.operands):
                self._carry_rows(op)
        for back in reversed(self._back):
            if not any(True for _ in back.uses) and isinstance(back.owner, Operation):
                Rewriter.erase_op(back.owner)

    def _insert(self, op: ValueOp) -> SSAValue:
        return self._emitter.emit(op)

    def _other(self, value: SSAValue) -> SSAValue:
        """The other form of a value."""
        if value not in self._last:
            self._last[value] = self._made(value)
        return self._last[value]

    def _made(self, value: SSAValue) -> SSAValue:
        shape = shape_of(value)
        perm = to_last(len(shape))
        wanted = permuted(shape, perm)
        match value.owner:
            case nn.ConstantOp() as constant:
                return self._insert(nn.ConstantOp(constant.value.value.data, with_shape(value, wanted)))
            case nn.BroadcastToOp() as wide:
                return self._insert(nn.BroadcastToOp(self._other(self._of_rank(wide.x, len(shape))), wanted))
            case _:
                pass
        return self._moved(value, perm)

    def _moved(self, value: SSAValue, perm: Sequence[int]) -> SSAValue:
        """A transposition, by a reshape where no element moves."""
        shape = shape_of(value)
        moving = [d for d in perm if shape[d] != 1]
        if moving == sorted(moving):
            return self._insert(nn.ReshapeOp(value, permuted(shape, perm)))
        return self._insert(nn.TransposeOp(value, perm))

    def _of_rank(self, value: SSAValue, rank: int) -> SSAValue:
        """With dimensions of size 1 in front."""
        shape = shape_of(value)
        if len(shape) == rank:
            return value
        if (value, rank) not in self._ranked:
            ones = (1,) * (rank - len(shape))
            self._ranked[value, rank] = self._insert(nn.ReshapeOp(value, (*ones, *shape)))
        return self._ranked[value, rank]

    def _replace(self, op: Operation, others: Sequence[SSAValue]) -> None:
        """The results of `op` are those that have these other forms."""
        values: list[SSAValue] = []
        for other in others:
            back = self._moved(other, to_first(len(shape_of(other))))
            self._back.append(back)
            self._last[back] = other
            values.append(back)
        Rewriter.replace_op(op, [], values)

    def _convolve(self, op: ConvolvingOp) -> None:
        a, b = map(self._other, op.factors)
        bias = op.operands[2:]
        last = op.convolved._replace(channels_last=True)
        if FewChannels.wanted(op, a, b) and element_name(element_type(a)) in NARROW:
            made = self._few.convolve(self._emitter, op, a, b, last, *bias)
        else:
            made = self._insert(type(op)(a, b, last, op.size.get_values(), *bias))
        self._replace(op, [made])

    def _transpose(self, op: nn.TransposeOp) -> None:
        """Remember what is [N, spatial, C] in front of it; after another form transpose from that one."""
        perm = op.perm.get_values()
        rank = len(perm)
        if op.x in self._last:
            composed = permuted(to_first(rank), perm)
            source = self._last[op.x]
            new = source if composed == tuple(range(rank)) else self._insert(nn.TransposeOp(source, composed))
            Rewriter.replace_op(op, [], [new])
        elif rank >= 3 and tuple(perm) == to_first(rank):
            self._last[op.result] = op.x

    def _carry(self, op: Operation) -> None:
        match op:
            case PointwiseOp() | nn.CastOp() | nn.BroadcastToOp():
                self._pointwise(op)
            case ReductionOp() | nn.VarMeanOp():
                self._reduce(op)
            case nn.WindowMaxOp() | nn.WindowSumOp() | nn.WindowTapOp() | nn.WindowRouteOp():
                self._pool(op)
            case nn.ConcatOp() | nn.SplitOp():
                rank = len(shape_of(op.operands[0]))
                self._clone(op, rank, {"dim": int_attr(to_first(rank)[op.dim.value.data])})
            case nn.PadOp():
                rank = len(shape_of(op.x))
                sides = {"low": op.low, "high": op.high}
                both = {
                    name: ints_attr(permuted(side.get_values(), to_last(rank)))
                    for name, side in sides.items()
                }
                self._clone(op, rank, both)
            case nn.ReshapeOp():
                self._reshape(op)
            case _:
                pass

    def _carry_rows(self, op: Operation) -> None:
        """Norms of groups of channels, and what makes images of them again; others read the groups as they were."""
        if isinstance(op, NormOp | NormGradOp):
            self._normalize(op)
        elif isinstance(op, nn.ReshapeOp):
            images = self._rows[op.x].images
            if shape_of(op.result) == permuted(shape_of(images), to_first(len(shape_of(images)))):
                self._replace(op, [images])

    def _clone(self, op: Operation, rank: int, properties: Mapping[str, Attribute]) -> None:
        """The op on the other forms of its operands, with other properties."""
        forms = {
            operand: self._other(self._of_rank(operand, rank)) if shape_of(operand) else operand
            for operand in op.operands
        }
        new = op.clone(value_mapper=dict(forms))
        new.properties |= properties
        for result in new.results:
            Rewriter.replace_value_with_new_type(
                result, with_shape(result, permuted(shape_of(result), to_last(rank)))
            )
        self._emitter.builder.insert(new)
        new.location = op.location
        self._replace(op, new.results)

    def _pointwise(self, op: ValueOp) -> None:
        rank = len(shape_of(op.result))
        if rank == len(shape_of(next(operand for operand in op.operands if operand in self._last))):
            self._clone(op, rank, {})

    def _reduce(self, op: ReductionOp | nn.VarMeanOp) -> None:
        x = self._last[op.x]
        rank = len(shape_of(x))
        dims = sorted(to_first(rank)[d] for d in op.dims.get_values())
        keepdim = is_true(op.keepdim)
        left = [d for j, d in enumerate(to_last(rank)) if j not in dims and shape_of(x)[j] != 1]
        if not keepdim and left != sorted(left):
            return
        new = op.clone(value_mapper={op.x: x})
        new.properties["dims"] = ints_attr(dims)
        for result in new.results:
            sizes = enumerate(shape_of(x))
            shape = [1 if j in dims else size for j, size in sizes if keepdim or j not in dims]
            Rewriter.replace_value_with_new_type(result, with_shape(result, shape))
        self._emitter.builder.insert(new)
        new.location = op.location
        if keepdim:
            self._replace(op, new.results)
            return
        values = [
            reshaped(self._insert, now, shape_of(old))
            for now, old in zip(new.results, op.results, strict=True)
        ]
        Rewriter.replace_op(op, [], values)

    def _pool(self, op: WindowedOp) -> None:
        """Channels as one more direction, in which a window has one element."""
        weighed = isinstance(op, nn.WindowSumOp) and op.w is not None
        if weighed or op.rank == MOST_DIMS:
            return
        forms = {operand: self._deep(self._other(operand)) for operand in op.operands}
        new = op.clone(value_mapper=dict(forms))
        n, channels, *size = shape_of(op.results[0])
        for name in WINDOWS:
            more = {"size": channels, "low": 0}.get(name, 1)
            new.properties[name] = ints_attr((*getattr(op, name).get_values(), more))
        result = new.results[0]
        Rewriter.replace_value_with_new_type(result, with_shape(result, (n, 1, *size, channels)))
        self._emitter.builder.insert(new)
        new.location = op.location
        self._replace(op, [self._insert(nn.ReshapeOp(new.results[0], (n, *size, channels)))])

    def _deep(self, value: SSAValue) -> SSAValue:
        n, *rest = shape_of(value)
        return self._insert(nn.ReshapeOp(value, (n, 1, *rest)))

    def _reshape(self, op: nn.ReshapeOp) -> None:
        """Of images and channels as they are; where there is one element a channel, both forms are the same."""
        other, shape = self._last[op.x], shape_of(op.result)
        n, channels, *spatial = shape_of(op.x)
        if len(shape) > 2 and shape[:2] == (n, channels):
            self._replace(op, [self._insert(nn.ReshapeOp(other, (n, *shape[2:], channels)))])
        elif all(size == 1 for size in spatial):
            Rewriter.replace_op(op, [], [self._insert(nn.ReshapeOp(other, shape))])
        elif len(shape) == 3 and shape[0] == n and channels % shape[1] == 0:  # groups of channels
            self._rows[op.result] = Rows(other, shape[1])

    def _normalize(self, op: NormOp | NormGradOp) -> None:
        """Groups of channels, each normalized as one row: in whatever order its elements are."""
        whole = shape_of(op.results[0])
        rows = [operand for operand in op.operands if shape_of(operand) == whole]
        others = [operand for operand in op.operands if operand not in rows]
        if not all(row in self._rows for row in rows) or any(shape_of(other)[-1] != 1 for other in others):
            return
        first = self._rows[rows[0]]
        forms = {row: self._rows[row].made(self._insert) for row in rows}
        forms |= {other: self._insert(nn.ReshapeOp(other, (*whole[:2], 1, 1))) for other in others}
        new = op.clone(value_mapper=dict(forms))
        new.properties["normalized"] = int_attr(2)
        self._emitter.builder.insert(new)
        new.location = op.location
        for old, result in zip(op.results, new.results, strict=True):
            is_whole = shape_of(old) == whole
            kept = shape_of(forms[rows[0]]) if is_whole else (*whole[:2], 1, 1)
            result = Rewriter.replace_value_with_new_type(result, with_shape(result, kept))
            if not is_whole:
                old.replace_all_uses_with(self._insert(nn.ReshapeOp(result, shape_of(old))))
                continue
            images = first.back(self._insert, result)
            back = self._moved(images, to_first(len(shape_of(images))))
            flat = self._insert(nn.ReshapeOp(back, whole))
            self._last[back] = images
            self._rows[flat] = Rows(images, first.groups)
            self._back += [back, flat]
            old.replace_all_uses_with(flat)
        Rewriter.erase_op(op)


class Rows(NamedTuple):
    """Images [N, spatial, C] as rows, one for each group of channels."""

    images: SSAValue
    groups: int

    def made(self, insert: Callable[[ValueOp], SSAValue]) -> SSAValue:
        """The rows, [N, groups, places, channels]."""
        n, *spatial, channels = shape_of(self.images)
        cut = (n, math.prod(spatial), self.groups, channels // self.groups)
        return insert(nn.TransposeOp(insert(nn.ReshapeOp(self.images, cut)), (0, 2, 1, 3)))

    def back(self, insert: Callable[[ValueOp], SSAValue], rows: SSAValue) -> SSAValue:
        """Images of rows in this order."""
        turned = insert(nn.TransposeOp(rows, (0, 2, 1, 3)))
        return insert(nn.ReshapeOp(turned, shape_of(self.images)))
