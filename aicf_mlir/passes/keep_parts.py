"""A small part that is read long after the rest of its block is copied, so that the block is free, on a GPU.

Queries, keys and values may be one product. Where positions rotate queries and keys, the gradient reads the rotated ones, and of
the product the values alone: with few heads for them, most of the product would be held for nothing. The copy reads and
writes the part once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.layouts import Layout, layout_of, shares_block
from aicf_mlir.ir.tensor_op import shape_of, tensor_type
from aicf_mlir.passes.target import TargetPass

LARGE = 1 << 24
"""Bytes of a block of which a part is copied."""
SHARE = 3
"""The part is at most so many times smaller than the block."""
LONG = 16
"""Launches between the last that reads the rest and the last that reads the part."""


@dataclass(frozen=True)
class KeepPartsPass(TargetPass):
    """Copy a small part of a large block that is read for much longer than the rest.

    Options:
      target: "cpu" (the default), where nothing is copied, or a compute capability such as "sm_90"
    """

    name = "keep-parts"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        for function in op.ops:
            if not isinstance(function, FuncOp) or function.is_declaration:
                continue
            ops = list(function.body.block.ops)
            position = {each: at for at, each in enumerate(ops)}
            for each in ops:
                if isinstance(each, KernelOp):
                    for result in each.results:
                        if is_block(result):
                            keep_part(result, position)


def is_block(value: SSAValue) -> bool:
    """True for a large tensor with memory of its own."""
    return not shares_block(value.type) and byte_size(*tensor_spec(value)) >= LARGE


def keep_part(block: OpResult, position: dict[Operation, int]) -> None:
    """Copy the part of `block` that its last readers read, if that is worth it."""
    uses = accesses(block)
    if not uses:
        return
    last = max(position[op] for op, _, _ in uses)
    part = next(value for op, _, value in uses if position[op] == last)
    layout = place_of(part)
    rest = [position[op] for op, _, value in uses if place_of(value) != layout]
    if not rest or SHARE * layout.count > prod(shape_of(block)) or layout.overlaps_itself:
        return
    if last - max(rest) < LONG:
        return
    late = [use for use in uses if position[use[0]] > max(rest)]
    first = min((op for op, _, _ in late), key=lambda op: position[op])
    if not isinstance(part.owner, Operation) or position[part.owner] > position[first]:
        return
    copy = kernel.CopyOp.launch([part], [with_shape(part, layout.shape)])
    copy.location = block.owner.location
    copy.results[0].name_hint = part.name_hint
    Rewriter.insert_op(copy, InsertPoint.before(first))
    for op, index, _ in late:
        op.operands[index] = copy.results[0]


def accesses(block: OpResult) -> list[tuple[KernelOp, int, SSAValue]] | None:
    """Each launch that reads `block`, the number of the operand, and the view that it reads; None if anything else uses it."""
    found: list[tuple[KernelOp, int, SSAValue]] = []
    values: list[SSAValue] = [block]
    while values:
        value = values.pop()
        for use in value.uses:
            op = use.operation
            if isinstance(op, KernelOp):
                found.append((op, use.index, value))
            elif isinstance(op, kernel.ReshapeOp | kernel.ViewOp) and not shares_block(value.type):
                values.append(op.results[0])
            else:
                return None
    return found


def place_of(value: SSAValue) -> Layout:
    """The places in its block that a value has."""
    return layout_of(tensor_type(value)).normal()
