"""Keys and values whose heads are repeated for groups of queries: attention reads each of these heads once.

Models write `x[:, :, None].expand(b, g, n, s, d).reshape(b, g * n, s, d)`. `nn.attention` shares heads by itself, so that nothing
is repeated, and its gradient adds up what the heads of a group get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf_mlir.dialects.nn.attention import AttentionBase
from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.shape import CastOp, ReshapeOp, TransposeOp
from aicf_mlir.ir.tensor_op import element_type, shape_of

Shape: TypeAlias = tuple[int, ...]


class ShareHeads(RewritePattern):
    """attention(q, repeat(k), repeat(v)) -> attention(q, k, v), by the largest factor that both are repeated by

    Not where its gradient is written already: `keep-scores` finds the two by their equal operands.
    """

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, AttentionBase) or op.largest.uses or op.total.uses:
            return
        heads = shape_of(op.key)[1]
        for count in (each for each in range(heads, 1, -1) if heads % each == 0):
            key, value = steps_to_heads(op.key, count), steps_to_heads(op.value, count)
            if key and value:
                op.operands[1] = heads_once(op.key, key, count, rewriter)
                op.operands[2] = heads_once(op.value, value, count, rewriter)
                rewriter.notify_op_modified(op)
                return


@dataclass(frozen=True)
class Repeat:
    """In row-major order, `count` neighbouring runs of `size` elements are equal, from the first to the last run."""

    size: int
    count: int

    def dimension(self, shape: Shape) -> int | None:
        """The dimension along which the equal runs are; None if they are along several."""
        stride = 1
        for dim in reversed(range(len(shape))):
            end = stride * shape[dim]
            if self.size < end:
                return None if self.size % stride or end % (self.size * self.count) else dim
            stride = end
        return None

    def once(self, shape: Shape, dim: int) -> Shape:
        """The shape if of equal runs along `dim` only the first is left."""
        return (*shape[:dim], shape[dim] // self.count, *shape[dim + 1 :])

    def moved(self, shape: Shape, dim: int, other: Shape, its: int) -> Repeat:
        """The repetition along `dim` of `shape`, where that is dimension `its` of the shape `other`."""
        steps = self.size // math.prod(shape[dim + 1 :])
        return Repeat(steps * math.prod(other[its + 1 :]), self.count)


@dataclass(frozen=True)
class Step:
    """An op between the tensor that is repeated and attention, with its shapes if each run is there once.

    A reshape is no step: the order of elements stays.
    """

    op: CastOp | TransposeOp | BroadcastToOp
    operand: Shape
    result: Shape


def steps_to(value: SSAValue, repeat: Repeat, wanted: Shape) -> list[Step] | None:
    """The steps from the last one, which gives `value`, to the broadcast that repeats the runs; None if there is no such one.

    `wanted` is the shape in which `value` is used if each run is there once.
    """
    steps: list[Step] = []
    while isinstance(op := value.owner, ReshapeOp | CastOp | TransposeOp | BroadcastToOp):
        value, shape, before = op.x, shape_of(op.result), shape_of(op.x)
        if isinstance(op, ReshapeOp):
            continue
        if isinstance(op, CastOp):
            steps.append(Step(op, wanted, wanted))
            continue
        if (dim := repeat.dimension(shape)) is None:
            return None
        once = repeat.once(shape, dim)
        its = op.perm.get_values()[dim] if isinstance(op, TransposeOp) else dim + len(before) - len(shape)
        if isinstance(op, BroadcastToOp) and (its < 0 or before[its] == 1):
            return [*steps, Step(op, before, once)]
        wanted = repeat.once(before, its)
        repeat = repeat.moved(shape, dim, before, its)
        steps.append(Step(op, wanted, once))
    return None


def shape_once(heads: SSAValue, count: int) -> Shape:
    """[B, H / count, S, D] of heads [B, H, S, D]."""
    batch, number, *row = shape_of(heads)
    return (batch, number // count, *row)


def steps_to_heads(heads: SSAValue, count: int) -> list[Step] | None:
    """The steps to heads [B, H, S, D] of which `count` neighbours are equal; None if they are not, or have no elements."""
    shape = shape_of(heads)
    if 0 in shape:
        return None
    return steps_to(heads, Repeat(math.prod(shape[2:]), count), shape_once(heads, count))


def heads_once(heads: SSAValue, steps: Sequence[Step], count: int, rewriter: PatternRewriter) -> SSAValue:
    """Emit the steps for heads of which each is there once."""

    def put(new: ValueOp, old: Operation, hint: str | None) -> SSAValue:
        new.location, new.result.name_hint = old.location, hint
        rewriter.insert(new)
        return new.result

    def reshaped(x: SSAValue, shape: Shape, old: Operation) -> SSAValue:
        return x if shape_of(x) == shape else put(ReshapeOp(x, shape), old, x.name_hint)

    x = steps[-1].op.x
    for step in reversed(steps):
        op, hint = step.op, step.op.result.name_hint
        x = reshaped(x, step.operand, op)
        if isinstance(op, CastOp):
            x = put(CastOp(x, element_type(op.result)), op, hint)
        elif isinstance(op, TransposeOp):
            x = put(TransposeOp(x, op.perm.get_values()), op, hint)
        elif math.prod(step.operand) != math.prod(step.result):
            x = put(BroadcastToOp(x, step.result), op, hint)
    return reshaped(x, shape_once(heads, count), steps[0].op)
