"""Attention without tensor cores: where computing its scores again costs more than keeping them, products and a softmax keep
them.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.attention import AttentionBase
from aicf_mlir.dialects.nn.attention_gradients import AttentionGradBase, MaskGradBase, OfDout
from aicf_mlir.dialects.nn.composed_attention import Composed, Operands
from aicf_mlir.ir.body import BITS
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.target import TargetPass

SHORTEST = 128
"""The number of causal keys from which on the CPU gains by the keys that it skips."""
MOST_SCORES = 1 << 22
"""Scores that the CPU keeps for the gradient."""
ON_GPU = range(1 << 21, (1 << 25) + 1)
"""Scores of f32 or f64 that a GPU keeps; with fewer the launches take longer, and more are too much memory."""

BAND, HEADS = 512, 8
"""Queries of a band, of causal attention that has two or more; and heads of all sequences from which on bands are faster."""

SKIPPED, ROWS, NARROW_HEAD = 512, 64 * 2, 64
"""The causal keys, rows of all heads for each multiprocessor, and elements of a row from and up to which the kernel is faster,
of a forward pass alone.
"""


@dataclass(frozen=True)
class KeepScoresPass(TargetPass):
    """Compose nn.attention and its gradient, which then share the weights, where the target rather keeps the scores."""

    name = "keep-scores"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        order = {inner: place for place, inner in enumerate(op.walk())}
        for inner in order:
            if not isinstance(inner, AttentionBase) or not keeps_scores(inner, self.target):
                continue
            gradients = {use.operation for kept in (inner.largest, inner.total) for use in kept.uses}
            if not self.is_cpu and not gradients and skips_half(inner, self.target):
                continue
            if all(is_gradient(each, inner) for each in gradients):
                in_order = sorted(
                    gradients, key=order.__getitem__
                )  # each may use what those before it have made
                compose(inner, [each for each in in_order if isinstance(each, OfDout)])


def keeps_scores(op: AttentionBase, target: str) -> bool:
    """True if a CPU gains: of few causal keys, or of all, unless there are very many scores; and always with dropout. A GPU
    gains without tensor cores, where the kernels of attention are half as fast as products.

    Generated code draws many weights at once, the kernels of attention draw one after the other.
    """
    *rows, keys = op.scores_shape
    count = math.prod(rows) * keys
    if not is_cpu(target):
        return op.dropped is None and BITS[element_name(element_type(op.query))] >= 32 and count in ON_GPU
    skips = is_true(op.causal) and keys >= SHORTEST
    return op.dropped is not None or (not skips and count <= MOST_SCORES)


def skips_half(op: AttentionBase, target: str) -> bool:
    """True if a GPU's kernel of attention gains by the tiles of scores that it leaves out: nearly half of them, for many keys,
    and heads and rows that fill the chip. Of wide heads it is slower all the same.
    """
    *rows, keys = op.scores_shape
    return (
        is_true(op.causal)
        and keys >= SKIPPED
        and math.prod(rows) >= ROWS * chip_of(target).processors
        and shape_of(op.query)[-1] <= NARROW_HEAD
    )


def is_gradient(op: Operation, attention: AttentionBase) -> bool:
    """True if it is the gradient of `attention`: then no other op needs the kept values of the rows."""
    return (
        isinstance(op, AttentionGradBase | MaskGradBase)
        and (op.out, op.largest, op.total) == tuple(attention.results)
        and op.attended == attention.attended
    )


def compose(attention: AttentionBase, gradients: list[OfDout]) -> None:
    """Write all of them by products and a softmax."""
    builder = Builder(InsertPoint.before(attention))
    composed = Composed(builder, attention.attended)
    with located(builder, attention):
        out = composed.out() if gradients else in_bands(builder, attention.attended)
    for gradient in gradients:
        builder.insertion_point = InsertPoint.before(gradient)
        with located(builder, gradient):
            values = gradient.by(composed)
        Rewriter.replace_op(gradient, [], values)
    Rewriter.replace_op(attention, [], [out, None, None])


def in_bands(builder: Builder, of: Operands) -> SSAValue:
    """The result of attention. If it is causal, a band of queries sees no more keys than it needs: of four, 5/8 of the scores."""
    batch, heads, queries, _ = shape_of(of.query)
    keys = shape_of(of.key)[2]
    is_long = min(queries, keys) >= 2 * BAND and batch * heads >= HEADS
    if not of.causal or of.mask is not None or of.dropped is not None or not is_long:
        return Composed(builder, of).out()
    sizes = [BAND] * (queries // BAND)
    sizes[-1] += queries % BAND
    made: list[SSAValue] = []
    for query, end in zip(
        builder.insert(nn.SplitOp(of.query, 2, sizes)).results, accumulate(sizes), strict=True
    ):
        seen = min(end, keys)
        key, value = (first(builder, each, seen) for each in (of.key, of.value))
        band = replace(of, query=query, key=key, value=value, before=end - shape_of(query)[2])
        made.append(Composed(builder, band).out())
    return builder.insert(nn.ConcatOp(made, 2)).result


def first(builder: Builder, keys: SSAValue, count: int) -> SSAValue:
    """The first of the keys."""
    rest = shape_of(keys)[2] - count
    return builder.insert(nn.SplitOp(keys, 2, (count, rest))).results[0] if rest else keys


@contextmanager
def located(builder: Builder, op: Operation) -> Generator[None]:
    """New ops are where `op` is in the user's code."""
    made: list[Operation] = []
    builder.operation_insertion_handler.append(made.append)
    yield
    builder.operation_insertion_handler.remove(made.append)
    for new in made:
        new.location = op.location
