"""Rows that end at a multiple of 16 bytes, on a GPU: products of odd sizes on tensor cores are padded, if they are large.

Tensor cores and the library read 16 bytes at once, from rows that start at a multiple of them. Rows of 63 or 319 elements do not:
their products would be copied element by element. So each operand is written to a block with zeros behind its rows, once for all
products that read it, and results are parts of such blocks. `elide-copies` has the launch that makes an operand write it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, TensorType, f64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, layout_of, shares_block, with_layout
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.fuse.constants import first_but_constants
from aicf_mlir.passes.fuse.library import Library
from aicf_mlir.passes.fuse.narrow_products import LARGE, added_bias
from aicf_mlir.passes.fuse.rule import FusionRule, is_small
from aicf_mlir.passes.fuse.views import view_chain

WORK = 128
"""Products for each element that is copied, from which on a batch is padded. A library that takes it as it is has some 20
products a picosecond there, and copies of short rows 0.2 elements (docs/performance.md)."""


@dataclass(frozen=True)
class FuseAlignedProductsPass(FusionRule):
    """Pad the large products on tensor cores whose rows do not end at a multiple of 16 bytes.

    Not in a small step.
    """

    name = "fuse-aligned-products"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if is_small(function):
            return
        padding = Padding(function, Library(self.target))
        for op in list(function.body.block.ops):
            if isinstance(op, kernel.GemmOp):
                padding.align(op)


class Padding:
    """The padded operands of one function."""

    def __init__(self, function: FuncOp, library: Library):
        self.block = function.body.block
        self.library = library
        self.location = function.location
        self._padded: dict[tuple[SSAValue, tuple[int, ...], tuple[int, ...]], SSAValue] = {}
        self._zeros: dict[Attribute, SSAValue] = {}

    def align(self, op: KernelOp) -> None:
        """Have `op` multiply padded operands, where its own are not aligned."""
        (a,), (b,), (*batch, m, n) = op.ins["a"], op.ins["b"], shape_of(op.results[0])
        trans_a, trans_b = (op.attrs.get(name) is True for name in ("trans_a", "trans_b"))
        k = shape_of(a)[-2 if trans_a else -1]
        dense = not any(shares_block(value.type) for value in (a, b, op.results[0]))
        wide = 8 if tensor_spec(a)[0] in NARROW else 4  # elements of 16 bytes
        on_tensor_cores = wide == 8 or op.attrs.get("allow_tf32") is True
        if not dense or not on_tensor_cores or prod(batch) * max(m * k, k * n, m * n) < LARGE:
            return
        wide_m = aligned(m, wide) if trans_a else m
        wide_k = aligned(k, wide) if trans_b or not trans_a else k
        wide_n = aligned(n, wide)
        if (wide_m, wide_n, wide_k) == (m, n, k):
            return
        shape_a = (*batch, *((wide_k, wide_m) if trans_a else (wide_m, wide_k)))
        shape_b = (*batch, *((wide_n, wide_k) if trans_b else (wide_k, wide_n)))
        shape = (*batch, wide_m, wide_n)
        wider = ((a, shape_a), (b, shape_b), (op.results[0], shape))
        copied = sum(prod(shape_of(value)) for value, wide_shape in wider if shape_of(value) != wide_shape)
        if batch and prod(batch) * m * n * k < WORK * copied and self.library.runs(op):
            return
        left, right = self.padded(a, shape_a), self.padded(b, shape_b)
        element = element_type(op.results[0])
        bias = added_bias(op)
        made: list[Operation] = [
            kernel.GemmOp.launch([left, right], [TensorType(element, shape)], **op.attrs)
        ]
        if bias is not None:
            given = self.padded(bias.operands[1], (wide_n,))
            made.append(kernel.BiasAddOp.launch([made[-1].results[0], given], [made[-1].results[0].type]))
        place = op if bias is None else bias
        if (wide_m, wide_n) != (m, n):
            part = with_layout(
                tensor_type(made[-1].results[0]), Layout((*batch, m, n), Layout.dense(shape).strides)
            )
            made.append(kernel.ViewOp.build_op([made[-1].results[0]], [part]))
            made.append(kernel.CopyOp.launch([made[-1].results[0]], [TensorType(element, (*batch, m, n))]))
        if made[-1].results[0].type != place.results[0].type:
            made.append(kernel.ReshapeOp.build_op([made[-1].results[0]], [place.results[0].type]))
        for new in made:
            new.location = place.location
        made[-1].results[0].name_hint = place.results[0].name_hint
        Rewriter.insert_op(made, InsertPoint.before(place))
        place.results[0].replace_all_uses_with(made[-1].results[0])
        while isinstance(place, Operation) and not any(True for _ in place.results[0].uses):
            before = place.operands[0].owner if place is not op else None
            Rewriter.erase_op(place)
            place = before

    def padded(self, value: SSAValue, shape: tuple[int, ...]) -> SSAValue:
        """`value` with zeros behind its rows, and behind them, up to `shape`."""
        own, root = shape_of(value), view_chain(value)[-1]
        if own == shape:
            return value
        if (root, own, shape) not in self._padded:
            parts = parts_of(root, Layout(own, Layout.dense(shape).strides))
            made = self.written(element_type(value), parts, own, shape)
            owner = root.owner
            if isinstance(owner, Operation):
                Rewriter.insert_op(made, InsertPoint.after(owner))
            else:
                Rewriter.insert_op(made, InsertPoint.before(first_but_constants(self.block) or made[0]))
            for op in made:
                op.location = owner.location if isinstance(owner, Operation) else self.location
            self._padded[root, own, shape] = made[-1].results[0]
            if any(source is root for source, _ in parts):
                self.add_there(root, own, made[-1])
            else:
                self.read_there(root, made[-1])
        return self._padded[root, own, shape]

    def read_there(self, joined: SSAValue, padded: Operation) -> None:
        """Have the readers of a join read its elements in the padded block: its parts are written once."""
        steps = Layout.dense(shape_of(padded.results[0])).strides
        own = next(shape for root, shape, _ in self._padded if root is joined)
        type_ = with_layout(tensor_type(padded.results[0]), Layout(own, steps))
        view = kernel.ViewOp.build_op([padded.results[0]], [type_])
        copy = kernel.CopyOp.launch([view.output], [TensorType(element_type(joined), own)])
        made: list[Operation] = [view, copy]
        if own != shape_of(joined):
            made.append(kernel.ReshapeOp.build_op([copy.results[0]], [joined.type]))
        for op in made:
            op.location = padded.location
        Rewriter.insert_op(made, InsertPoint.after(padded))
        joined.replace_all_uses_with(made[-1].results[0])
        self._padded[copy.results[0], own, shape_of(padded.results[0])] = padded.results[0]

    def add_there(self, root: SSAValue, own: tuple[int, ...], padded: Operation) -> None:
        """Have the sums of columns of `root` read the padded block, so that nothing else reads `root` itself."""
        (block,), *above = padded.results, *own[:-1]
        wide = shape_of(block)
        if len(own) != 2 or [wide[0]] != above:
            return
        for op in [use.operation for use in root.uses]:
            if (
                not isinstance(op, kernel.ReduceSumOp)
                or shape_of(op.operands[0]) != own
                or op.attrs["dims"] != [0]
            ):
                continue
            given = op.results[0]
            total = kernel.ReduceSumOp.launch(
                [block], [TensorType(element_type(given), wide[1:])], **op.attrs
            )
            part = with_layout(tensor_type(total.results[0]), Layout(own[1:], (1,)))
            view = kernel.ViewOp.build_op([total.results[0]], [part])
            copy = kernel.CopyOp.launch([view.output], [TensorType(element_type(given), own[1:])])
            made: list[Operation] = [total, view, copy]
            if shape_of(given) != own[1:]:
                made.append(kernel.ReshapeOp.build_op([copy.results[0]], [given.type]))
            for new in made:
                new.location = op.location
            made[-1].results[0].name_hint = given.name_hint
            Rewriter.insert_op(made, InsertPoint.before(op))
            given.replace_all_uses_with(made[-1].results[0])
            Rewriter.erase_op(op)

    def written(
        self,
        element: Attribute,
        sources: Sequence[tuple[SSAValue, Layout]],
        own: tuple[int, ...],
        shape: tuple[int, ...],
    ) -> list[Operation]:
        """The ops that write the sources, which are of shape `own` together, and zeros to a block of `shape`: the last result."""
        block, zero = TensorType(element, shape), self.zero(element)
        made: list[Operation] = []
        parts: list[SSAValue] = []
        *above, wide = shape
        *_, columns = own
        steps = Layout.dense(shape).strides

        def write(source: SSAValue, layout: Layout) -> None:
            if not prod(layout.shape):
                return
            if source is zero:
                repeated = Layout(layout.shape, (0,) * len(layout.shape))
                made.append(kernel.ViewOp.build_op([zero], [with_layout(tensor_type(zero), repeated)]))
                source = made[-1].results[0]
            elif shape_of(source) != layout.shape:
                made.append(kernel.ReshapeOp.build_op([source], [with_shape(source, layout.shape)]))
                source = made[-1].results[0]
            made.append(kernel.CopyOp.launch([source], [with_layout(block, layout)]))
            parts.append(made[-1].results[0])

        for source, layout in sources:
            write(source, layout)
        write(zero, Layout((*own[:-1], wide - columns), steps, columns))
        if above:
            write(zero, Layout((*above[:-1], above[-1] - own[-2], wide), steps, own[-2] * wide))
        return [*made, kernel.JoinOp.build_op(parts, [block])]

    def zero(self, element: Attribute) -> SSAValue:
        """One zero."""
        if element not in self._zeros:
            op = kernel.ConstantOp.build_op([], [TensorType(element, (1,))], {"value": FloatAttr(0.0, f64)})
            op.location = self.location
            Rewriter.insert_op(op, InsertPoint.at_start(self.block))
            self._zeros[element] = op.results[0]
        return self._zeros[element]


def parts_of(value: SSAValue, place: Layout) -> list[tuple[SSAValue, Layout]]:
    """The dense tensors that `value` at `place` is joined of, and where they are then. `value` itself if it is no join, or one of
    other parts: of casts, of views, or of results that a launch writes there.
    """
    if not isinstance(join := value.owner, kernel.JoinOp):
        return [(value, place)]
    parts: list[tuple[SSAValue, Layout]] = []
    for part in join.inputs:
        if not prod(shape_of(part)):
            continue
        writer, there = part.owner, place.then(layout_of(tensor_type(part)))
        if not isinstance(writer, kernel.CopyOp) or shares_block(writer.operands[0].type) or there is None:
            return [(value, place)]
        if element_type(writer.operands[0]) != element_type(value):
            return [(value, place)]
        parts += [(writer.operands[0], there)]
    return parts


def aligned(size: int, wide: int) -> int:
    """The next multiple of what is read at once."""
    return -(-size // wide) * wide
