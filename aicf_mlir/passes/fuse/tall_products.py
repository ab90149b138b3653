"""Long sums with few results in f32 and f64, on a GPU: the gradient of a narrow layer's weight over many rows.

A block of threads computes a tile of the result over all terms, so a result of few tiles leaves most of the chip idle. On tensor
cores the kernels divide the terms themselves (split-k). Here the parts are the members of a batch, whose products are then added
in order: one launch more, and as many blocks as fill the chip. What cuBLASLt does with 64 x 64 x 100,000 takes eight times the
bytes; from 256 rows and columns on it divides such sums well itself, if it takes them (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.chips import chip_of
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.rule import FusionRule, is_small

WIDE = 256
"""Rows and columns of a result from which on a library divides the terms well."""
TILES = ((WIDE, 128, 4), (128, 64, 4), (0, 32, 8))
"""For results of so many rows and columns at least: those of a tile, and how often the longer side the terms are at least."""
LONG, SHORTEST = 2048, 256
"""The terms from which on a sum is divided, and those of a part, at least."""
ALIGNED = 4
"""The terms of a part are a multiple of these, so that each begins where 16 bytes do."""


@dataclass(frozen=True)
class FuseTallProductsPass(FusionRule):
    """Divide the long sums of products whose tiles would occupy less than half of a chip.

    Not in a small step.
    """

    name = "fuse-tall-products"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if is_small(function):
            return
        for op in list(function.body.block.ops):
            if isinstance(op, kernel.GemmOp) and (found := parts_of(op, self.target)) is not None:
                divide(op, *found)


def parts_of(op: KernelOp, target: str) -> tuple[int, int] | None:
    """The number of parts and the terms of each, which may leave some terms over; None where the product stays whole."""
    (a,), (b,), shape = op.ins["a"], op.ins["b"], shape_of(op.results[0])
    element = tensor_spec(a)[0]
    if len(shape) != 2 or element not in ("f32", "f64") or op.attrs.get("allow_tf32") is True:
        return None
    if any(shares_block(value.type) for value in (a, b, op.results[0])):
        return None
    (m, n), k = shape, shape_of(a)[0 if op.attrs.get("trans_a") is True else 1]
    if min(m, n) >= WIDE and Library(target).runs(op):
        return None
    side, times = next((side, times) for least, side, times in TILES if min(m, n) >= least)
    tiles = -(-m // side) * -(-n // side)
    if k < LONG or k < times * max(m, n) or not 0 < 2 * tiles <= chip_of(target).processors:
        return None
    most = min(2 * chip_of(target).processors // tiles, k // SHORTEST)
    even = next((parts for parts in range(most, most // 2, -1) if k % parts == 0), None)
    return (even, k // even) if even is not None else (most, k // most // ALIGNED * ALIGNED)


def divide(op: KernelOp, parts: int, length: int) -> None:
    """Write the product as a sum over the products of its parts, and of the terms that are left."""
    (a,), (b,), shape = op.ins["a"], op.ins["b"], shape_of(op.results[0])
    factors = (a, op.attrs.get("trans_a") is True), (b, op.attrs.get("trans_b") is not True)
    """Each with whether its terms are rows."""
    element, made = element_type(op.results[0]), list[Operation]()

    def add(new: Operation) -> SSAValue:
        made.append(new)
        return new.results[0]

    def product(shape: tuple[int, ...], *seen: Operation) -> SSAValue:
        operands = list(map(add, seen))
        return add(kernel.GemmOp.launch(operands, [TensorType(element, shape)], **op.attrs))

    whole = product((parts, *shape), *(in_parts(x, parts, length, by_rows) for x, by_rows in factors))
    total = add(kernel.ReduceSumOp.launch([whole], [op.results[0].type], dims=[0]))
    if shape_of(a)[0 if factors[0][1] else 1] > parts * length:
        rest = product(shape, *(from_term(x, parts * length, by_rows) for x, by_rows in factors))
        total = add(kernel.AddOp.launch([total, rest], [op.results[0].type]))
    for new in made:
        new.location = op.location
    total.name_hint = op.results[0].name_hint
    Rewriter.insert_op(made, InsertPoint.before(op))
    Rewriter.replace_op(op, [], [total])


def in_parts(value: SSAValue, parts: int, length: int, by_rows: bool) -> Operation:
    """A matrix as a batch of matrices of as many rows, or of as many columns; what is left over is left out."""
    rows, columns = shape_of(value)
    if by_rows and parts * length == rows:
        return kernel.ReshapeOp.build_op([value], [with_shape(value, (parts, length, columns))])
    if by_rows:
        return seen(value, Layout((parts, length, columns), (length * columns, columns, 1)))
    return seen(value, Layout((parts, rows, length), (length, columns, 1)))


def from_term(value: SSAValue, first: int, by_rows: bool) -> Operation:
    """The rows, or the columns, from the first on."""
    rows, columns = shape_of(value)
    if by_rows:
        return seen(value, Layout((rows - first, columns), (columns, 1), first * columns))
    return seen(value, Layout((rows, columns - first), (columns, 1), first))


def seen(value: SSAValue, layout: Layout) -> Operation:
    """The elements of a dense tensor at a layout."""
    return kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)])
