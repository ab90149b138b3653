"""Everything that must hold between passes: what xDSL's `verify` checks, and what it does not."""

from __future__ import annotations

from typing import NoReturn

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.ir.signature import verify_signature


def verify_module(module: ModuleOp) -> None:
    """
    Check every op, the dominance of definitions over uses, and the labels of every function.

    Raises VerifyException, with the op in question marked in its notes.
    """
    module.verify()
    verify_dominance(module)
    for op in module.walk():
        if isinstance(op, func.FuncOp):
            try:
                verify_signature(op)
            except VerifyException as error:
                op.emit_error(str(error), error)


def verify_dominance(module: ModuleOp) -> None:
    """
    Check that every operand is defined before its use, in the same block or in one around it.

    Regions here have one block; of several, each sees the values of the blocks written above it.
    """
    seen: set[SSAValue] = set()

    def visit(block: Block) -> None:
        seen.update(block.args)
        for op in block.ops:
            for operand in op.operands:
                if operand not in seen:
                    refuse(op, operand)
            for region in op.regions:
                for inner in region.blocks:
                    visit(inner)
            seen.update(op.results)

    visit(module.body.block)


def refuse(op: Operation, operand: SSAValue) -> NoReturn:
    """Report a use that no definition comes before."""
    name = f"%{operand.name_hint}" if operand.name_hint else "a value"
    definition = f"'{operand.op.name}' defines it" if isinstance(operand, OpResult) else "it is defined"
    message = f"'{op.name}' uses {name} before {definition}"
    op.emit_error(message, VerifyException(message))
