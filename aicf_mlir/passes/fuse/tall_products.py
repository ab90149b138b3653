"""Long sums with few results in f32 and f64, on a GPU: the gradient of a narrow layer's weight over many rows.

A block of threads computes a tile of the result over all terms, so a result of few tiles leaves most of the chip idle. On tensor
cores the kernels divide the terms themselves (split-k), and so does the library. Here the parts are the members of a batch, whose
products are then added in order: one launch more, and as many blocks as fill the chip.
"""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.library import Library

TILE, MULTIPROCESSORS = 32, 132
"""The rows and columns of a tile, and how many tiles a large chip computes at once."""
LONG, SHORTEST = 2048, 256
"""The terms from which on a sum is divided, and those of a part, at least."""


def divide_tall_products(function: FuncOp, library: Library) -> None:
    """Divide the long products of `function` that would be computed by less than half of a chip."""
    for op in list(function.body.block.ops):
        if isinstance(op, kernel.GemmOp) and (parts := parts_of(op)) > 1 and not library.runs(op):
            divide(op, parts)


def parts_of(op: KernelOp) -> int:
    """The number of parts, which divides the terms; 1 where the product stays whole."""
    (a,), (b,), shape = op.ins["a"], op.ins["b"], shape_of(op.results[0])
    element = tensor_spec(a)[0]
    if len(shape) != 2 or element not in ("f32", "f64") or op.attrs.get("allow_tf32") is True:
        return 1
    if any(shares_block(value.type) for value in (a, b, op.results[0])):
        return 1
    (m, n), k = shape, shape_of(a)[0 if op.attrs.get("trans_a") is True else 1]
    tiles = -(-m // TILE) * -(-n // TILE)
    if k < LONG or k < 8 * max(m, n) or not 0 < 2 * tiles <= MULTIPROCESSORS:
        return 1
    most = min(2 * MULTIPROCESSORS // tiles, k // SHORTEST)
    return next((parts for parts in range(most, 1, -1) if k % parts == 0), 1)


def divide(op: KernelOp, parts: int) -> None:
    """Write the product as a sum over the products of its parts."""
    (a,), (b,), shape = op.ins["a"], op.ins["b"], shape_of(op.results[0])
    left = in_parts(a, parts, by_rows=op.attrs.get("trans_a") is True)
    right = in_parts(b, parts, by_rows=op.attrs.get("trans_b") is not True)
    element = element_type(op.results[0])
    product = kernel.GemmOp.launch(
        [left.results[0], right.results[0]], [TensorType(element, (parts, *shape))], **op.attrs
    )
    total = kernel.ReduceSumOp.launch([product.results[0]], [op.results[0].type], dims=[0])
    made: list[Operation] = [left, right, product, total]
    for new in made:
        new.location = op.location
    total.results[0].name_hint = op.results[0].name_hint
    Rewriter.insert_op(made, InsertPoint.before(op))
    Rewriter.replace_op(op, [], [total.results[0]])


def in_parts(value: SSAValue, parts: int, by_rows: bool) -> Operation:
    """A matrix as a batch of matrices of as many rows, or of as many columns."""
    rows, columns = shape_of(value)
    if by_rows:
        return kernel.ReshapeOp.build_op([value], [with_shape(value, (parts, rows // parts, columns))])
    width = columns // parts
    layout = Layout((parts, rows, width), (width, columns, 1))
    return kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)])
