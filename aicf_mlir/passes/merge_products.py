"""Products of one x with several weights become one, with the weights one below the other.

The queries, keys and values of attention are the usual case. One product fills more of a chip than each of three, reads x once,
and so do both of its gradients: that of x is one sum instead of three that something adds. The gradient's parts are written where
the joined product reads them. What each weight costs is a copy, or nothing where its cast to 16 bits writes a copy anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.train import GradientOp
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.interfaces import DifferentiableInPartsInterface
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.properties import is_true
from aicf_mlir.ir.signature import argument_labels, result_labels, return_op
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.autodiff import CUTS
from aicf_mlir.passes.target import TargetPass

LEAST_ROWS = 1024
"""The fewest rows of x: with fewer the copies of the weights are no small part of what moves."""
MOST_ELEMENTS = 8 << 20
"""The most elements of a weight: the tiles of a larger one's gradient fill a large chip."""

Key = tuple[SSAValue, bool, bool, object, tuple[str, ...], int]


@dataclass(frozen=True)
class MergeProductsPass(TargetPass):
    """Make one product of those that multiply one x by several weights, on a GPU."""

    name = "merge-products"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        for function in op.walk():
            if isinstance(function, FuncOp) and not function.is_declaration:
                for products in groups(function):
                    merge(products)


def groups(function: FuncOp) -> Iterator[list[nn.LinearOp]]:
    """The products of a function that become one, those of each group in the order of the text."""
    labels, found = argument_labels(function), dict[Key, list[nn.LinearOp]]()
    reached = gradients_of(function)
    block = function.body.block
    for op in block.ops:
        if not isinstance(op, nn.LinearOp):
            continue
        rows, weight = math.prod(shape_of(op.x)[:-1]), shape_of(op.w)
        sources = [argument_of(value, block) for value in (op.w, op.bias) if value is not None]
        if rows < LEAST_ROWS or math.prod(weight) > MOST_ELEMENTS or None in sources:
            continue
        if (taken := reached.get(op.result, 0)) < 0:
            continue
        # Products with a frozen weight stay apart from those that are trained.
        roles = tuple(labels[source.index].role for source in sources if source is not None)
        key = (
            op.x,
            is_true(op.allow_tf32),
            op.bias is None,
            element_type(op.w),
            roles,
            taken,
        )
        found.setdefault(key, []).append(op)
    yield from (products for products in found.values() if len({op.w for op in products}) > 1)


def gradients_of(function: FuncOp) -> dict[SSAValue, int]:
    """The gradients that take a value into account, a bit each: a weight whose product none reaches has none, and not zeros.

    A gradient goes the way of `autodiff`: from the loss, and from what the ops of a loop body differentiate. Negative for a value
    that a gradient inside of the step takes into account, which may itself be differentiated: who knows by what.
    """
    found: dict[SSAValue, int] = {}
    for value, label in zip(return_op(function).operands, result_labels(function), strict=True):
        if label.role == "loss":
            found[value] = 1
    bit = 1
    for op in reversed(list(function.body.block.ops)):
        if isinstance(op, CUTS):
            bit <<= 1
            arriving, read = 0 if isinstance(op, nn.DetachOp) else bit, list(op.operands)
            arriving = -1 if isinstance(op, GradientOp) else arriving
        else:
            stopped = op.without_gradient if isinstance(op, DifferentiableInPartsInterface) else ()
            arriving = 0
            for each in op.results:
                if is_float(each) and each not in stopped:
                    arriving |= found.get(each, 0)
            read = list(op.wrt if isinstance(op, nn.CustomGradientOp) else op.operands)
        if arriving:
            for value in read:
                found[value] = found.get(value, 0) | arriving
    return found


def argument_of(value: SSAValue, block: Block) -> BlockArgument | None:
    """The argument of the function that a weight is, as it is or cast; None for another value."""
    while isinstance(op := value.owner, nn.CastOp):
        value = op.x
    return value if isinstance(value, BlockArgument) and value.owner is block else None


def merge(products: list[nn.LinearOp]) -> None:
    """Write the products as one, at the place of the first."""
    first = products[0]
    weights = [hoisted(op.w, first) for op in products]
    biases = [hoisted(op.bias, first) for op in products if op.bias is not None]
    added = [nn.ConcatOp(values, 0) for values in (weights, biases) if values]
    operands = [first.x, *(op.result for op in added)]
    joined = nn.LinearOp(*operands, allow_tf32=is_true(first.allow_tf32))
    rank, sizes = len(shape_of(joined.result)), [shape_of(value)[0] for value in weights]
    parts = nn.SplitOp(joined.result, rank - 1, sizes)
    location = fused_location(*products)
    for op in (*added, joined, parts):
        op.location = location
    Rewriter.insert_op((*added, joined, parts), InsertPoint.before(first))
    for op, part in zip(products, parts.parts, strict=True):
        Rewriter.replace_op(op, [], [part])


def hoisted(value: SSAValue, place: Operation) -> SSAValue:
    """A weight, whose casts move in front of `place` where they are behind it."""
    if isinstance(op := value.owner, nn.CastOp):
        hoisted(op.x, place)
        if not op.is_before_in_block(place):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))
    return value
