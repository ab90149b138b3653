"""
Canonical forms of nn ops. Every rewrite keeps each bit of the result that the op defines: not which NaN it is,
and not in which order a product or a sum adds up.

Left alone for that reason: x + 0 (it turns -0.0 into 0.0), the sum of a broadcast (one rounding is not many),
and a cast of a cast that rounds (two roundings are not one).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects.nn import pointwise
from aicf_mlir.dialects.nn.attention import AttentionBase
from aicf_mlir.dialects.nn.broadcasting import BroadcastToOp, ReductionOp
from aicf_mlir.dialects.nn.common import ValueOp
from aicf_mlir.dialects.nn.linear_algebra import LinearOp, MatmulOp
from aicf_mlir.dialects.nn.pieces import ByPieces
from aicf_mlir.dialects.nn.pointwise import GRADIENTS, PointwiseOp
from aicf_mlir.dialects.nn.repeated_heads import ShareHeads
from aicf_mlir.dialects.nn.shape import CastOp, ConstantOp, ReshapeOp, TransposeOp
from aicf_mlir.dialects.nn.slicing import ConcatOp, SplitOp
from aicf_mlir.ir.body import BITS
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.expect import broadcast_shapes, with_shape
from aicf_mlir.ir.properties import ints_attr, is_true
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type


def replace(rewriter: PatternRewriter, op: ValueOp, new: ValueOp | SSAValue) -> None:
    """Put `new` in the place of `op`, at its location."""
    if isinstance(new, SSAValue):
        rewriter.replace(op, (), (new,))
    else:
        new.location = op.location
        rewriter.replace(op, new)


def is_constant(value: SSAValue, number: float) -> bool:
    """True if `value` is an nn.constant of that number."""
    return isinstance(op := value.owner, ConstantOp) and op.value.value.data == number


class RemoveIdentity(RewritePattern):
    """reshape, cast and broadcast_to to the same type, and transpose in the same order -> x"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, ReshapeOp | CastOp | BroadcastToOp | TransposeOp):
            return
        if isinstance(op, TransposeOp) and list(op.perm.get_values()) != list(range(len(op.perm))):
            return
        if op.x.type == op.result.type:
            replace(rewriter, op, op.x)


class RemoveEmptyReduction(RewritePattern):
    """sum, mean and others that are x itself over no dimensions -> x"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, ReductionOp) and len(op.dims) == 0 and op.is_one_itself:
            replace(rewriter, op, op.x)


class ReduceBeforeTranspose(RewritePattern):
    """sum(transpose(x)) -> transpose(sum(x)) and so on, if nothing else reads what is transposed"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if (
            not isinstance(op, ReductionOp)
            or not isinstance(op.x.owner, TransposeOp)
            or not op.x.has_one_use()
        ):
            return
        perm = op.x.owner.perm.get_values()
        dims = op.dims.get_values()
        new = op.clone(value_mapper={op.x: op.x.owner.x})
        new.properties["dims"] = ints_attr(sorted(perm[d] for d in dims))
        kept = [d for n, d in enumerate(perm) if is_true(op.keepdim) or n not in dims]
        order = sorted(kept)
        shape = shape_of(op.result)
        lies = with_shape(op.result, [shape[kept.index(d)] for d in order])
        turned = TransposeOp(
            Rewriter.replace_value_with_new_type(new.result, lies), [order.index(d) for d in kept]
        )
        new.location = turned.location = op.location
        rewriter.replace(op, [new, turned])


class MergeReshapes(RewritePattern):
    """reshape(reshape(x)) -> reshape(x); reshape(constant) -> constant"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ReshapeOp, rewriter: PatternRewriter) -> None:
        match op.x.owner:
            case ReshapeOp() as inner:
                replace(rewriter, op, ReshapeOp(inner.x, shape_of(op.result)))
            case ConstantOp() as inner:
                replace(rewriter, op, ConstantOp(inner.value.value.data, tensor_type(op.result)))
            case _:
                pass


class MergeTransposes(RewritePattern):
    """transpose(transpose(x)) -> transpose(x); transpose(matmul(a, b)) -> matmul(b, a) with turned flags"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: TransposeOp, rewriter: PatternRewriter) -> None:
        match op.x.owner:
            case TransposeOp() as inner:
                order = inner.perm.get_values()
                replace(rewriter, op, TransposeOp(inner.x, [order[d] for d in op.perm.get_values()]))
            case MatmulOp() as inner if swaps_last_two(op) and inner.result.has_one_use():
                flags = (not is_true(inner.trans_b), not is_true(inner.trans_a))
                replace(
                    rewriter, op, MatmulOp(inner.b, inner.a, *flags, allow_tf32=is_true(inner.allow_tf32))
                )
            case _:
                pass


class MergeBroadcasts(RewritePattern):
    """broadcast_to(broadcast_to(x)) -> broadcast_to(x)"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BroadcastToOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.x.owner, BroadcastToOp):
            replace(rewriter, op, BroadcastToOp(inner.x, shape_of(op.result)))


class AbsorbBroadcast(RewritePattern):
    """Rewrite add(broadcast_to(x), y) -> add(x, y) if y, or the rest of the broadcast, gives the shape."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, PointwiseOp):
            return
        operands = list(op.operands)
        for index, operand in enumerate(operands):
            if isinstance(wide := operand.owner, BroadcastToOp):
                narrowed = [*operands[:index], wide.x, *operands[index + 1 :]]
                if broadcast_shapes(*(shape_of(value) for value in narrowed)) == shape_of(op.result):
                    replace(rewriter, op, type(op)(*narrowed, **op.parameters))
                    return


class RemoveMultiplicationByOne(RewritePattern):
    """mul(x, 1), mul(1, x) and div(x, 1) -> x"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, pointwise.MulOp | pointwise.DivOp):
            return
        x, y = op.operands
        if is_constant(y, 1.0) and x.type == op.result.type:
            replace(rewriter, op, x)
        elif isinstance(op, pointwise.MulOp) and is_constant(x, 1.0) and y.type == op.result.type:
            replace(rewriter, op, y)


class FoldConstants(RewritePattern):
    """Rewrite add, sub, mul and div of two constants -> constant, in f32 and f64: each rounds correctly, once."""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if type(op) not in ROUNDED_ONCE or not isinstance(op, PointwiseOp):
            return
        element = element_name(element_type(op.result))
        x, y = (value.owner for value in op.operands)
        if element not in ("f32", "f64") or not isinstance(x, ConstantOp) or not isinstance(y, ConstantOp):
            return
        try:  # digits of f64 are enough for an operation on two numbers of f32 to be rounded once more
            left, right = (_rounded(each.value.value.data, element) for each in (x, y))
            made = _rounded(ROUNDED_ONCE[type(op)](left, right), element)
        except (OverflowError, ZeroDivisionError):
            return
        if math.isfinite(made):
            replace(rewriter, op, ConstantOp(made, tensor_type(op.result)))


ROUNDED_ONCE: Mapping[type[Operation], Callable[[float, float], float]] = {
    pointwise.AddOp: lambda x, y: x + y,
    pointwise.SubOp: lambda x, y: x - y,
    pointwise.MulOp: lambda x, y: x * y,
    pointwise.DivOp: lambda x, y: x / y,
}


def _rounded(value: float, element: str) -> float:
    """Return a number as an element of f32 or f64. Raises OverflowError if it is too large."""
    return float(struct.unpack("f", struct.pack("f", value))[0]) if element == "f32" else value


class CancelNegations(RewritePattern):
    """neg(neg(x)) -> x"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if isinstance(op, pointwise.NegOp) and isinstance(inner := op.operands[0].owner, pointwise.NegOp):
            replace(rewriter, op, inner.operands[0])


class AbsorbNegation(RewritePattern):
    """add(x, neg(y)) -> sub(x, y); add(neg(x), y) -> sub(y, x); sub(x, neg(y)) -> add(x, y)"""

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter) -> None:
        if not isinstance(op, pointwise.AddOp | pointwise.SubOp):
            return
        x, y = op.operands
        if isinstance(negated := y.owner, pointwise.NegOp):
            opposite = pointwise.SubOp if isinstance(op, pointwise.AddOp) else pointwise.AddOp
            replace(rewriter, op, opposite(x, negated.operands[0]))
        elif isinstance(op, pointwise.AddOp) and isinstance(negated := x.owner, pointwise.NegOp):
            replace(rewriter, op, pointwise.SubOp(y, negated.operands[0]))


class AbsorbTransposeIntoMatmul(RewritePattern):
    """
    matmul(transpose(a), b) -> matmul(a, b, trans_a = true), and so for b, if the last dimensions swap

    Where others move too, only those stay: matmul(transpose(a, [1, 2, 0]), b) -> matmul(transpose(a, [1, 0, 2]), b,
    trans_a = true).
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: MatmulOp, rewriter: PatternRewriter) -> None:
        a, trans_a = without_swap(op.a, rewriter)
        b, trans_b = without_swap(op.b, rewriter)
        if trans_a or trans_b:
            flags = (is_true(op.trans_a) != trans_a, is_true(op.trans_b) != trans_b)
            replace(rewriter, op, MatmulOp(a, b, *flags, allow_tf32=is_true(op.allow_tf32)))


class LinearOfTransposedWeight(RewritePattern):
    """linear(x, transpose(w)) of a matrix x, without bias -> matmul(x, w)"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: LinearOp, rewriter: PatternRewriter) -> None:
        w, transposed = without_transpose(op.w)
        if transposed and op.bias is None and len(shape_of(op.x)) == 2:
            replace(rewriter, op, MatmulOp(op.x, w, allow_tf32=is_true(op.allow_tf32)))


class SplitOfConcat(RewritePattern):
    """Rewrite split(concat(a, b)) -> a, b if it cuts where they were joined; split(x) into one part -> x."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: SplitOp, rewriter: PatternRewriter) -> None:
        inner, sizes = op.x.owner, list(op.sizes.get_values())
        if len(sizes) == 1:
            rewriter.replace(op, (), (op.x,))
        elif isinstance(inner, ConcatOp) and inner.dim == op.dim and inner.sizes() == sizes:
            rewriter.replace(op, (), inner.inputs)


class ConcatOfSplit(RewritePattern):
    """concat(split(x)) of all parts in order -> x; concat(x) -> x; concat(concat(a, b), c) -> concat(a, b, c) if nothing else
    reads the inner one
    """

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: ConcatOp, rewriter: PatternRewriter) -> None:
        inner = op.inputs[0].owner
        if len(op.inputs) == 1:
            replace(rewriter, op, op.inputs[0])
        elif isinstance(inner, SplitOp) and inner.dim == op.dim and [*inner.parts] == [*op.inputs]:
            replace(rewriter, op, inner.x)
        else:
            inputs = [part for each in op.inputs for part in joined(each, op)]
            if len(inputs) > len(op.inputs):
                replace(rewriter, op, ConcatOp(inputs, op.dim.value.data))


def joined(value: SSAValue, outer: ConcatOp) -> list[SSAValue]:
    """What `value` is joined of along the dimension of `outer`, which alone reads it; else the value."""
    inner = value.owner
    if isinstance(inner, ConcatOp) and inner.dim == outer.dim and value.has_one_use():
        return list(inner.inputs)
    return [value]


class CastOfWidened(RewritePattern):
    """cast(cast(x)) -> cast(x) if the inner one is exact, and the gradient on its way back too"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CastOp, rewriter: PatternRewriter) -> None:
        if isinstance(inner := op.x.owner, CastOp) and widens(inner.x, op.x) and widens(op.result, op.x):
            replace(rewriter, op, CastOp(inner.x, element_type(op.result)))


class CastOfConcat(RewritePattern):
    """cast(concat(a, b)) -> concat(cast(a), cast(b)) of fewer bits, if nothing else reads the wide one: it is never written"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CastOp, rewriter: PatternRewriter) -> None:
        inner = op.x.owner
        if not isinstance(inner, ConcatOp) or not inner.result.has_one_use() or not widens(op.result, op.x):
            return
        casts = [CastOp(value, element_type(op.result)) for value in inner.inputs]
        for cast in casts:
            cast.location = op.location
        rewriter.insert(casts)
        replace(rewriter, op, ConcatOp([cast.result for cast in casts], inner.dim.value.data))


class CastOfTranspose(RewritePattern):
    """cast(transpose(x)) -> transpose(cast(x)) of no more bytes, if nothing else reads the transpose: a copy moves fewer"""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: CastOp, rewriter: PatternRewriter) -> None:
        inner = op.x.owner
        if not isinstance(inner, TransposeOp) or not op.x.has_one_use() or bits(op.result) > bits(op.x):
            return
        cast = CastOp(inner.x, element_type(op.result))
        cast.location, cast.result.name_hint = op.location, op.result.name_hint
        rewriter.insert(cast)
        replace(rewriter, op, TransposeOp(cast.result, inner.perm.get_values()))


def bits(value: SSAValue) -> int:
    """Of an element."""
    return BITS[element_name(element_type(value))]


def widens(narrow: SSAValue, wide: SSAValue) -> bool:
    """True if the float type of `wide` has every value of that of `narrow`, and others."""
    return element_name(element_type(narrow)) in EXACT_IN.get(element_name(element_type(wide)), ())


EXACT_IN = {"f32": ("f16", "bf16"), "f64": ("f16", "bf16", "f32")}


def swaps_last_two(op: TransposeOp) -> bool:
    """True if the transpose swaps the last two dimensions and keeps the others."""
    perm = list(op.perm.get_values())
    last = len(perm) - 1
    return last >= 1 and perm == [*range(last - 1), last, last - 1]


def without_swap(value: SSAValue, rewriter: PatternRewriter) -> tuple[SSAValue, bool]:
    """`value` with its last two dimensions in the order of the tensor that it is a transpose of, and True if they were
    swapped. A cast that nothing else reads is made of that tensor.
    """
    op = value.owner
    if isinstance(op, CastOp) and value.has_one_use():
        before, swapped = without_swap(op.x, rewriter)
        if not swapped:
            return value, False
        cast = CastOp(before, element_type(value))
        cast.location, cast.result.name_hint = op.location, value.name_hint
        rewriter.insert(cast)
        return cast.result, True
    if not isinstance(op, TransposeOp) or len(op.perm) < 2:
        return value, False
    *others, row, column = op.perm.get_values()
    if row < column:
        return value, False
    if swaps_last_two(op):
        return op.x, True
    turned = TransposeOp(op.x, [*others, column, row])
    turned.location = op.location
    turned.result.name_hint = value.name_hint
    rewriter.insert(turned)
    return turned.result, True


def without_transpose(value: SSAValue) -> tuple[SSAValue, bool]:
    """The operand of a swap of the last two dimensions and True, or `value` and False."""
    op = value.owner
    return (op.x, True) if isinstance(op, TransposeOp) and swaps_last_two(op) else (value, False)


ARITHMETIC = (FoldConstants(), AbsorbBroadcast(), AbsorbNegation(), RemoveMultiplicationByOne(), ByPieces())

PATTERNS: Mapping[type[Operation], tuple[RewritePattern, ...]] = {
    ReshapeOp: (RemoveIdentity(), MergeReshapes()),
    TransposeOp: (RemoveIdentity(), MergeTransposes()),
    CastOp: (RemoveIdentity(), CastOfWidened(), CastOfConcat(), CastOfTranspose(), ByPieces()),
    BroadcastToOp: (RemoveIdentity(), MergeBroadcasts()),
    ReductionOp: (RemoveEmptyReduction(), ReduceBeforeTranspose()),
    MatmulOp: (AbsorbTransposeIntoMatmul(),),
    LinearOp: (LinearOfTransposedWeight(),),
    SplitOp: (SplitOfConcat(),),
    ConcatOp: (ConcatOfSplit(),),
    AttentionBase: (ShareHeads(),),
    **dict.fromkeys((pointwise.AddOp, pointwise.SubOp, pointwise.MulOp, pointwise.DivOp), ARITHMETIC),
    pointwise.NegOp: (CancelNegations(), ByPieces()),
    **{
        op: () for name, op in pointwise.CLASSES.items() if name in GRADIENTS
    },  # they keep their operands as they are
    PointwiseOp: (AbsorbBroadcast(), ByPieces()),
}
"""The canonical forms of each op, or of all ops of a class that have no row of their own."""


def patterns_of(op: type[Operation]) -> tuple[RewritePattern, ...]:
    """The patterns of the nearest class of `op` that has a row."""
    return next(PATTERNS[each] for each in op.__mro__ if each in PATTERNS)
