"""Everything that must hold between passes: what xDSL's `verify` checks, and what it does not."""

from __future__ import annotations

from time import perf_counter
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


class Verifier:
    """Verifies a module between passes: again only where a pass has changed it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Wall time of all calls."""
        self._verified: list[object] = []

    def __call__(self, module: ModuleOp) -> None:
        """As `verify_module`, unless all that it looks at is as it was when this last found nothing to refuse."""
        start = perf_counter()
        try:
            now = parts_of(module)
            if now != self._verified:
                verify_module(module)
                self._verified = now
        finally:
            self.seconds += perf_counter() - start


def parts_of(module: ModuleOp) -> list[object]:
    """All that verification looks at, in the order of the text; two lists that are equal verify alike.

    Ops, blocks and values are compared by identity, types and attributes by value. Names and locations are left out.
    """
    parts: list[object] = []
    for op in module.walk():
        parts += (op, len(op.operands), *op.operands, len(op.results), *op.results, *op.result_types)
        parts += (len(op.properties), *op.properties.items(), len(op.attributes), *op.attributes.items())
        parts += (*op.successors, len(op.regions))
        for region in op.regions:
            parts.append(len(region.blocks))
            for block in region.blocks:
                parts += (block, len(block.args), *block.args, *block.arg_types, block.last_op)
    return parts


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
