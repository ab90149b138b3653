"""Constants come before everything in a block: a launch may be written at the place of any of its operands' launches."""

from __future__ import annotations

from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel


def write_constants_first(block: Block) -> None:
    """Move each constant before all other ops, in their order."""
    ops = list(block.ops)
    first = first_but_constants(block)
    if first is None:
        return
    for op in ops[ops.index(first) :]:
        if isinstance(op, kernel.ConstantOp):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(first))


def first_but_constants(block: Block) -> Operation | None:
    """The first op that is no constant."""
    return next((op for op in block.ops if not isinstance(op, kernel.ConstantOp)), None)
