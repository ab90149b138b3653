"""Pointwise ops on joined tensors, by pieces: what is joined to be read once is never written.

A rotary embedding reads `cat((-x2, x1), -1)` of the halves of x. Each half of the result is a function of both halves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf_mlir.dialects.nn.pointwise import GRADIENTS, PointwiseOp
from aicf_mlir.dialects.nn.shape import CastOp
from aicf_mlir.dialects.nn.slicing import ConcatOp, SplitOp
from aicf_mlir.ir.body import BITS
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.tensor_op import element_type, shape_of

MOST_PIECES = 4
LEAST_BYTES = 16
"""Bytes that the narrowest piece has next to each other: what a thread of a GPU reads at once."""
DEEPEST = 32
"""Ops that are computed by pieces in front of one."""


Pointwise: TypeAlias = PointwiseOp | CastOp


class ByPieces(RewritePattern):
    """f(x, concat(g(a), h(b))) -> concat(f(x1, g(a)), f(x2, h(b))) with the pieces of x, if nothing else reads the concat

    Its operands are pointwise themselves or cut off a tensor: others may be written where they are joined.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not is_pointwise(op):
            return
        joined = next((each.owner for each in op.operands if is_in_pieces(each)), None)
        if not isinstance(joined, ConcatOp):
            return
        cut = Cut(len(shape_of(joined.result)) - joined.dim.value.data, tuple(joined.sizes()))
        if shape_of(op.result)[-cut.dim] != sum(cut.sizes):
            return
        parts = Pieces(cut, op, rewriter).of_op(op)
        whole = ConcatOp(parts, len(shape_of(op.result)) - cut.dim)
        whole.location, whole.result.name_hint = op.location, op.result.name_hint
        rewriter.replace(op, whole)


def is_pointwise(op: object) -> TypeGuard[Pointwise]:
    """True for an op whose result has an element for one of each operand. Gradients keep their operands as they are."""
    return isinstance(op, CastOp) or (isinstance(op, PointwiseOp) and op.row().name not in GRADIENTS)


def is_in_pieces(value: SSAValue) -> bool:
    """True for a few wide pieces that are joined for one op, and which are cut off tensors or computed element by element."""
    op = value.owner
    if not isinstance(op, ConcatOp) or not value.has_one_use() or len(op.inputs) > MOST_PIECES:
        return False
    inner = math.prod(shape_of(value)[op.dim.value.data + 1 :])
    narrowest = min(op.sizes()) * inner * BITS[element_name(element_type(value))] // 8
    return narrowest >= LEAST_BYTES and all(
        isinstance(each.owner, SplitOp) or is_pointwise(each.owner) for each in op.inputs
    )


@dataclass(frozen=True)
class Cut:
    """Where tensors are cut: dimension `dim`, counted from behind from 1 on, into `sizes`."""

    dim: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Pieces:
    """Writes values by pieces."""

    cut: Cut
    reader: Operation
    """The op that is written by pieces; a split is at its line."""
    rewriter: PatternRewriter

    def of_op(self, op: Pointwise, depth: int = 0) -> Sequence[SSAValue]:
        """The result of a pointwise op, from the pieces of its operands."""
        operands = [self.of(each, depth + 1) for each in op.operands]
        return [self.made(op, [each[i] for each in operands]) for i in range(len(self.cut.sizes))]

    def of(self, value: SSAValue, depth: int) -> Sequence[SSAValue]:
        """The pieces of an operand; itself for each of them where it repeats along the dimension."""
        shape, op, sizes = shape_of(value), value.owner, self.cut.sizes
        dim = len(shape) - self.cut.dim
        if dim < 0 or shape[dim] == 1:
            return [value] * len(sizes)
        if isinstance(op, ConcatOp) and op.dim.value.data == dim and tuple(op.sizes()) == sizes:
            return list(op.inputs)
        if is_pointwise(op) and value.has_one_use() and depth < DEEPEST:
            return self.of_op(op, depth)
        split = SplitOp(value, dim, sizes)
        split.location = self.reader.location
        self.rewriter.insert(split)
        return list(split.parts)

    def made(self, op: Pointwise, operands: Sequence[SSAValue]) -> SSAValue:
        """`op` on other operands."""
        if isinstance(op, PointwiseOp):
            new: Pointwise = type(op)(*operands, **op.parameters)
        else:
            new = CastOp(operands[0], element_type(op.result))
        new.location, new.result.name_hint = op.location, op.result.name_hint
        self.rewriter.insert(new)
        return new.result
