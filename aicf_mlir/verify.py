"""Everything that holds for any module: xDSL's own checks, and what they leave out."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.utils.exceptions import VerifyException


def verify_module(module: ModuleOp) -> None:
    """Raise `VerifyException` at the first op that breaks its dialect's rules or uses a value before its definition."""
    _verify_dominance(module.body.block, set())
    module.verify()


def _verify_dominance(block: Block, defined: set[SSAValue]) -> None:
    defined.update(block.args)
    for op in block.ops:
        for index, operand in enumerate(op.operands):
            if operand not in defined:
                message = f"operand {index} of '{op.name}' is used before its definition"
                op.emit_error(message, VerifyException(message))
        for region in op.regions:
            for inner in region.blocks:
                _verify_dominance(inner, set(defined))
        defined.update(op.results)
