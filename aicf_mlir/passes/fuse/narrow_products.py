"""Narrow products as loops, on a GPU: of fewer than 8 rows, columns or terms, and small ones of odd columns.

The smallest tile of a product has 16 rows and columns, and copies rows of fewer than 16 bytes element by element. So a head
with one output, its gradients and a sum of few terms take many times what their bytes need. As loops they read each operand
once at the rate of memory, and are fused with their neighbours as any other loop:

    few columns of rows that lie along k      rowwise over [m, n, k]: dot products
    few rows or columns, summed over rows     colwise over [k, n]: a sum for each of the few, as in the gradient of a head, and
                                              of a layer of few features
    few terms                                 map over [m, n]: a sum of products without a loop

Of a batch, products of few terms are such a map, and those of one row or one column are dot products, in whatever direction
their rows lie.

Sums are those of a product: in f32 (f64 for f64), with a bias, rounded once. In a small step, results for which tiles of small
products exist keep them (`small_updates.py`). On the CPU narrow products have code of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.formula import Scalar, row_sum, trace
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.loss_loops.launches import computed_in
from aicf_mlir.passes.fuse.rule import FusionRule, is_small
from aicf_mlir.passes.fuse.small_updates import is_small_product
from aicf_mlir.passes.fuse.views import used_once, view_chain

NARROW = 8
"""The fewest rows, columns or terms of a product that tiles compute: 16 bytes of 16-bit elements."""
MOST_BYTES, LARGE = 64, 1 << 18
"""The bytes of a row that is stored by single elements, up to which it is dot products; and the elements of the largest matrix
from which on rows are padded instead. By single elements they take some 9 us, and by padding two launches.

On an H200 a head of 256 x 512 by 10 takes 31.5 us with its gradients in bf16 by a tile, and 20.7 with dot products.
"""
FEW_SUMS, LONG, WARP = 16, 2048, 32
"""The most rows or columns of f32 that are sums of columns, where they have so many terms and the other side fills a warp.

A tile computes at least 16 x 16 over all terms, so 512 x 13 of 2048 terms occupy 32 multiprocessors: 17.5 us on an H200 for what
takes 1.1 us to read. Sums of columns are divided over the chip. They read one element, and others that a warp shares, for as many
multiplications as there are sums: up to 16 that is less than memory takes.
"""


@dataclass(frozen=True)
class NarrowProduct:
    """A product `z[i, j]`, the sum over l of a[i, l] b[l, j], or a batch of them, and the steps of its operands in memory."""

    op: KernelOp
    bias: KernelOp | None
    """The addition of a bias, if nothing else reads the product."""
    m: int
    n: int
    k: int
    a: tuple[int, int]
    """The distances in a from i to i + 1, and from l to l + 1."""
    b: tuple[int, int]
    """The distances in b from l to l + 1, and from j to j + 1."""
    batch: int = 1

    @property
    def few(self) -> int:
        """The most rows or columns that are sums of columns."""
        return FEW_SUMS if self.has_long_sums and max(self.m, self.n) >= WARP else NARROW - 1

    @property
    def has_long_sums(self) -> bool:
        """True for many terms of f32, which tiles do not divide as those of tensor cores do."""
        in_f32 = tensor_spec(self.op.results[0])[0] == "f32" and self.op.attrs.get("allow_tf32") is not True
        return in_f32 and self.k >= LONG

    @property
    def has_few_terms(self) -> bool:
        """True if the sums are written out."""
        return self.k < NARROW

    @property
    def has_few_columns(self) -> bool:
        """True if rows of a, along k, have a few sums each; as does its only row with those of b."""
        if self.batch > 1:
            return 1 in (self.m, self.n)
        is_narrow = self.n < NARROW or self.has_odd_columns
        return self.a[1] == 1 and (is_narrow or (self.m == 1 and self.b[0] == 1))

    @property
    def has_odd_columns(self) -> bool:
        """True if rows of b lie along k, and the short ones of the result would be stored by single elements."""
        row = byte_size(tensor_spec(self.op.results[0])[0], (self.n,))
        is_small = max(self.m * self.k, self.k * self.n, self.m * self.n) < LARGE
        return row % 16 != 0 and row < MOST_BYTES and is_small and self.b[0] == 1 and not self.has_long_sums

    @property
    def has_few_sums(self) -> bool:
        """True if both operands are walked across k: along the columns of b for few rows, along those of a for few columns."""
        across = self.a[0] == 1 if self.n <= self.few else self.m <= self.few and self.b[1] == 1
        return across and self.bias is None and self.batch == 1

    def over(self, name: str, *steps: int) -> tuple[int, ...]:
        """The steps of an operand with those of the batch in front; of a bias, which a batch shares, none."""
        if self.batch == 1:
            return steps
        return ({"a": self.m * self.k, "b": self.k * self.n, "bias": 0}[name], *steps)

    def shape(self, *sizes: int) -> tuple[int, ...]:
        """The domain of so many points of each product."""
        return sizes if self.batch == 1 else (self.batch, *sizes)


@dataclass(frozen=True)
class FuseNarrowProductsPass(FusionRule):
    """Write products of fewer than 8 rows, columns or terms as loops, and small ones of an odd number of columns.

    In a small step tiles of small results keep theirs, except for few terms, which may become one launch with their neighbours.
    """

    name = "fuse-narrow-products"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        for op in list(function.body.block.ops):
            product = narrow_product(op) if isinstance(op, kernel.GemmOp) else None
            if product is None:
                continue
            in_tile = is_small(function) and is_small_product(product.op.results[0], self.target)
            if not in_tile or product.has_few_terms:
                Loops(product, bodies).write()


def narrow_product(op: KernelOp) -> NarrowProduct | None:
    """`op` as one that has loops; None for others."""
    (a,), (b,), shape = op.ins["a"], op.ins["b"], shape_of(op.results[0])
    *batch, m, n = shape if len(shape) > 1 else (0, 0)
    if any(shares_block(value.type) for value in (a, b, op.results[0])):
        return None
    if any(shape_of(value)[:-2] != tuple(batch) for value in (a, b)):
        return None
    trans_a, trans_b = (op.attrs.get(name) is True for name in ("trans_a", "trans_b"))
    rows, columns = shape_of(a)[-2:]
    k = rows if trans_a else columns
    steps = (1, m) if trans_a else (k, 1), (1, k) if trans_b else (n, 1)
    found = NarrowProduct(op, added_bias(op), m, n, k, *steps, prod(batch))
    narrow = found.has_few_terms or found.has_few_columns or found.has_few_sums
    return found if narrow and prod((*batch, m, n, k)) else None


def added_bias(op: KernelOp) -> KernelOp | None:
    """The launch that adds a bias to the product, where it is its only reader."""
    value = op.results[0]
    while len(uses := list(value.uses)) == 1:
        reader = uses[0].operation
        if isinstance(reader, kernel.ReshapeOp):
            value = reader.output
            continue
        if not isinstance(reader, kernel.BiasAddOp) or uses[0].index or not used_once(view_chain(value)):
            break
        return reader if shape_of(reader.operands[1]) == shape_of(op.results[0])[-1:] else None
    return None


class Loops:
    """The launches of one narrow product, in the order of the text."""

    def __init__(self, product: NarrowProduct, bodies: Bodies):
        self.product = product
        self.bodies = bodies
        self.made: list[Operation] = []

    def write(self) -> None:
        """Put them in the place of the product, and of the addition of its bias."""
        p = self.product
        place = p.bias or p.op
        value = self.value()
        if value.type != place.results[0].type:
            value = self.add(kernel.ReshapeOp.build_op([value], [place.results[0].type]))
        value.name_hint = place.results[0].name_hint
        location = p.op.location if p.bias is None else fused_location(p.op, p.bias)
        for op in self.made:
            op.location = location
        Rewriter.insert_op(self.made, InsertPoint.before(place))
        chain = view_chain(place.operands[0]) if p.bias is not None else []
        place.results[0].replace_all_uses_with(value)
        Rewriter.erase_op(place)
        for link in chain:
            assert isinstance(link.owner, Operation)
            Rewriter.erase_op(link.owner)

    def value(self) -> SSAValue:
        """The product, of shape [m, n] or of as many elements in the same order."""
        p = self.product
        if p.has_few_terms:
            return self.few_terms()
        if p.has_few_columns:
            return self.dot_products()
        return self.column_sums()

    def few_terms(self) -> SSAValue:
        p = self.product
        shape = p.shape(p.m, p.n)
        terms = [self.operand("a", shape, p.over("a", p.a[0], 0), at * p.a[1]) for at in range(p.k)]
        terms += [self.operand("b", shape, p.over("b", 0, p.b[1]), at * p.b[0]) for at in range(p.k)]

        def formula(*given: Scalar) -> Scalar:
            products = [x * y for x, y in zip(given[: p.k], given[p.k : 2 * p.k], strict=True)]
            return reduce(Scalar.__add__, (*products, *given[2 * p.k :]))

        return self.launch(
            kernel.MapOp, formula, [*terms, *self.bias(shape, p.over("bias", 0, 1))], [shape], shape
        )[0]

    def dot_products(self) -> SSAValue:
        p = self.product
        shape = p.shape(p.m, p.n, p.k)
        operands = [
            self.operand("a", shape, p.over("a", p.a[0], 0, p.a[1])),
            self.operand("b", shape, p.over("b", 0, p.b[1], p.b[0])),
            *self.bias(shape, p.over("bias", 0, 1, 0)),
        ]

        def formula(x: Scalar, y: Scalar, *bias: Scalar) -> Scalar:
            return reduce(Scalar.__add__, (row_sum(x * y), *bias))

        return self.launch(kernel.RowwiseOp, formula, operands, [shape[:-1]], shape, reduced=1)[0]

    def column_sums(self) -> SSAValue:
        """A sum for each of the few rows, or columns, over the others: joined as rows, and turned if they are columns."""
        p = self.product
        turned = p.n <= p.few
        few, many = (p.n, p.m) if turned else (p.m, p.n)
        (few_step, few_k), (many_k, many_step) = (p.b[::-1], p.a[::-1]) if turned else (p.a, p.b)
        names = ("b", "a") if turned else ("a", "b")
        shape = (p.k, many)
        factors = [self.operand(names[0], shape, (few_k, 0), at * few_step) for at in range(few)]
        whole = self.operand(names[1], shape, (many_k, many_step))

        def formula(*given: Scalar) -> list[Scalar]:
            return [row_sum(given[-1] * factor) for factor in given[:-1]]

        sums = self.launch(kernel.ColwiseOp, formula, [*factors, whole], [(many,)] * few, shape, reduced=1)
        return self.joined(sums, turned) if few > 1 else sums[0]

    def joined(self, sums: list[SSAValue], turned: bool) -> SSAValue:
        """The sums as the rows of one tensor, or as its columns: each launch of a copy is elided later."""
        (length,), few = shape_of(sums[0]), len(sums)
        block = self.tensor((length, few) if turned else (few, length))
        steps = (few, 1) if turned else (1, length)
        layouts = [Layout((length,), steps[:1], at * steps[1]) for at in range(few)]
        parts = [
            self.add(kernel.CopyOp.launch([each], [with_layout(block, layout)]))
            for each, layout in zip(sums, layouts, strict=True)
        ]
        return self.add(kernel.JoinOp.build_op(parts, [block]))

    def bias(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> list[SSAValue]:
        """The bias at each point, if there is one."""
        bias = self.product.bias
        return [] if bias is None else [self.seen(bias.operands[1], Layout(shape, strides))]

    def operand(
        self, name: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
    ) -> SSAValue:
        """A or b at each point of a domain."""
        return self.seen(self.product.op.ins[name][0], Layout(shape, strides, offset))

    def seen(self, value: SSAValue, layout: Layout) -> SSAValue:
        layout = layout.normal()
        if layout.is_dense and layout.count == prod(shape_of(value)):
            if layout.shape == shape_of(value):
                return value
            return self.add(kernel.ReshapeOp.build_op([value], [with_shape(value, layout.shape)]))
        return self.add(kernel.ViewOp.build_op([value], [with_layout(tensor_type(value), layout)]))

    def launch(
        self,
        kind: Any,
        formula: Any,
        operands: list[SSAValue],
        results: list[tuple[int, ...]],
        shape: tuple[int, ...],
        **attrs: int,
    ) -> list[SSAValue]:
        body = trace([computed_in(value) for value in operands], formula)
        op = kind.launch(
            {"x": operands, "table": []},
            {"y": [self.tensor(shape) for shape in results]},
            body=Symbol(self.bodies.symbol(body, "narrow_product")),
            shape=list(shape),
            **attrs,
        )
        self.made.append(op)
        return list(op.results)

    def tensor(self, shape: tuple[int, ...]) -> TensorType[Any]:
        return TensorType(element_type(self.product.op.results[0]), shape)

    def add(self, op: Operation) -> SSAValue:
        self.made.append(op)
        return op.results[0]
