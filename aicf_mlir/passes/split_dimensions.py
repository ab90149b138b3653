"""Launches beside a copy that permutes parts of their dimensions run over these parts.

Windows of an image are `[N, H/7, 7, W/7, 7, C]` with two dimensions exchanged. A launch over `[N, H, W, C]` cannot write them in
place, as no strides express that; one over the parts can. Its body is the same. `elide-copies` then removes the copy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir import _C
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.tensor_op import shape_of, tensor_type

Parts = Sequence[tuple[int, ...]]
"""For each dimension the ones that it becomes."""


@dataclass(frozen=True)
class SplitDimensionsPass(ModulePass):
    """Have a map or a rowwise launch run over the dimensions that a copy of its operand or result permutes."""

    name = "split-dimensions"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        bodies = Bodies(op)
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for launch in list(function.body.block.ops):
                    if isinstance(launch, GeneratedOp) and isinstance(
                        launch, kernel.MapOp | kernel.RowwiseOp
                    ):
                        split_launch(launch, bodies)


def split_launch(launch: GeneratedOp, bodies: Bodies) -> None:
    """Rewrite `launch` over the parts of its dimensions, if a copy beside it permutes them and its body counts in none."""
    domain = shape_attr(launch)
    rank = len(domain) - reduced_of(launch)
    row, parts = math.prod(domain[rank:]), [(size,) for size in domain[:rank]]
    for shape in permuted_shapes(launch) if math.prod(domain) else ():
        parts = refined(parts, shape, row) or parts
    if all(len(each) == 1 for each in parts) or bodies[launch.body_symbol].dims:
        return
    split = Split(domain, tuple(parts))
    if split.fits(launch):
        rewrite(launch, split)


def shape_attr(launch: KernelOp) -> tuple[int, ...]:
    """The domain of a generated launch."""
    shape = launch.attrs["shape"]
    assert isinstance(shape, Sequence)
    return tuple(size for size in shape if isinstance(size, int))


def reduced_of(launch: KernelOp) -> int:
    """The number of its last dimensions that are reduced; 0 of a map."""
    reduced = launch.attrs.get("reduced", 0)
    assert isinstance(reduced, int)
    return reduced


def permuted_shapes(launch: KernelOp) -> Iterator[tuple[int, ...]]:
    """The shapes in which copies beside `launch` permute what it reads or writes."""
    for value in launch.operands:
        if isinstance(reshape := value.owner, kernel.ReshapeOp):
            copy = reshape.operands[0].owner
            if isinstance(copy, kernel.CopyOp) and isinstance(copy.operands[0].owner, kernel.ViewOp):
                yield shape_of(copy.results[0])
    for result in launch.results:
        for use in result.uses:
            if isinstance(reshape := use.operation, kernel.ReshapeOp):
                views = (each.operation for each in reshape.results[0].uses)
                if any(isinstance(view, kernel.ViewOp) and is_copied(view) for view in views):
                    yield shape_of(reshape.results[0])


def is_copied(view: Operation) -> bool:
    """True if a copy reads the view."""
    return any(isinstance(use.operation, kernel.CopyOp) for use in view.results[0].uses)


def refined(parts: Parts, shape: Sequence[int], row: int) -> list[tuple[int, ...]] | None:
    """The parts, divided where a dimension of `shape` begins; None if one begins within a row of `row` elements, or they do
    not divide each other.
    """
    ends: list[int] = sorted(set(accumulate(reversed(shape), operator.mul)))
    if any(1 < end < row for end in ends):
        return None
    found: list[tuple[int, ...]] = []
    behind = row
    for sizes in reversed(parts):
        made: list[int] = []
        for size in reversed(sizes):
            whole = behind * size
            for end in [*(end for end in ends if behind < end < whole), whole]:
                if end % behind:
                    return None
                made.append(end // behind)
                behind = end
        found.append(tuple(reversed(made)))
    return found[::-1]


@dataclass(frozen=True)
class Split:
    """A domain whose first dimensions, those that are not reduced, become parts."""

    domain: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The reduced dimensions."""
        return self.domain[len(self.parts) :]

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of an operand or a result; that of sums of columns stays."""
        if tuple(shape) == self.rows:
            return self.rows
        return (*(size for sizes in self.parts for size in sizes), *shape[len(self.parts) :])

    def layout(self, layout: Layout) -> Layout:
        """The same places by parts."""
        strides = [
            stride * math.prod(sizes[at + 1 :])
            for sizes, stride in zip(self.parts, layout.strides, strict=False)
            for at in range(len(sizes))
        ]
        rest = layout.strides[len(self.parts) :]
        return Layout(self.of(layout.shape), (*strides, *rest), layout.offset)

    def fits(self, launch: KernelOp) -> bool:
        """True if kernels take so many dimensions, all operands run over the domain, and it is clear which results have its first
        dimensions.
        """
        kept = self.domain[: len(self.parts)]
        if len(self.of(self.domain)) > _C.MAX_RANK:
            return False
        if len(launch.ins["x"]) < len(launch.operands):
            return False  # a table
        if any(shape_of(value) != self.domain for value in launch.operands):
            return False
        if any(
            shares_block(value.type) and not isinstance(value.owner, kernel.ViewOp)
            for value in launch.operands
        ):
            return False
        shapes = [shape_of(result) for result in launch.results]
        if any(shares_block(result.type) for result in launch.results) or (
            kept == self.rows and kept in shapes
        ):
            return False
        return all(shape in (self.domain, kept, self.rows) for shape in shapes)


def rewrite(launch: KernelOp, split: Split) -> None:
    """Replace `launch` by one over the parts."""
    operands = [split_operand(launch, value, split) for value in launch.operands]
    types = [with_shape(result, split.of(shape_of(result))) for result in launch.results]
    attrs = {**launch.attrs, "shape": list(split.of(split.domain))}
    made = type(launch).launch({"x": operands}, {"y": types}, **attrs)
    made.location = launch.location
    Rewriter.insert_op(made, InsertPoint.before(launch))
    for old, new in zip(launch.results, made.results, strict=True):
        new.name_hint = old.name_hint
        hand_over(old, new)
    launch.detach()
    launch.erase()


def split_operand(launch: KernelOp, value: SSAValue, split: Split) -> SSAValue:
    """An operand by parts, from as far back as nothing moves."""
    type_, source = with_shape(value, split.of(split.domain)), value
    if isinstance(view := value.owner, kernel.ViewOp):
        type_, source = with_layout(tensor_type(value), split.layout(view.layout)), view.operands[0]
        op = kernel.ViewOp.build_op([source], [type_])
    else:
        if isinstance(value.owner, kernel.ReshapeOp):
            source = value.owner.operands[0]
        if source.type == type_:
            return source
        op = kernel.ReshapeOp.build_op([source], [type_])
    op.location = launch.location
    op.results[0].name_hint = value.name_hint
    Rewriter.insert_op(op, InsertPoint.before(launch))
    return op.results[0]


def hand_over(old: OpResult, new: OpResult) -> None:
    """Have the readers of `old` read `new`: reshapes at once, others by a reshape."""
    if old.type == new.type:
        old.replace_all_uses_with(new)
        return
    for use in [*old.uses]:
        if isinstance(reshape := use.operation, kernel.ReshapeOp):
            if reshape.results[0].type == new.type:
                reshape.results[0].replace_all_uses_with(new)
                reshape.detach()
                reshape.erase()
            else:
                reshape.operands[0] = new
    if old.first_use is not None:
        back = kernel.ReshapeOp.build_op([new], [old.type])
        back.location = new.op.location
        back.results[0].name_hint = new.name_hint
        Rewriter.insert_op(back, InsertPoint.after(new.op))
        old.replace_all_uses_with(back.results[0])
