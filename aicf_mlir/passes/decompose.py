"""Compose first: an op that has no launch of its own is written by ops that have one."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from aicf_mlir.ir.interfaces import DecomposableInterface
from aicf_mlir.passes.lower import RULES
from aicf_mlir.passes.target import TargetPass

DEEPEST = 32
"""The largest depth to which the parts of an op may be decomposed in turn."""


@dataclass(frozen=True)
class DecomposePass(TargetPass):
    """Replace ops that `lower` has no rule for by their parts, at their location."""

    name = "decompose"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pending = [(inner, 0) for inner in op.walk()]
        while pending:
            inner, depth = pending.pop()
            if not isinstance(inner, DecomposableInterface) or type(inner) in RULES:
                continue
            if depth == DEEPEST:
                message = f"'{inner.name}' is made of itself: it was taken apart {DEEPEST} times"
                inner.emit_error(message, PassFailedException(message))
            pending += [(new, depth + 1) for new in taken_apart(inner, self.target)]


def taken_apart(op: DecomposableInterface, target: str) -> list[Operation]:
    """The ops that replace `op`."""
    made: list[Operation] = []
    builder = Builder(InsertPoint.before(op))
    builder.operation_insertion_handler.append(made.append)
    values = op.decompose(builder, target)
    for new in made:
        new.location = op.location
    for result, value in zip(op.results, values, strict=True):
        if result.type != value.type:
            message = f"'{op.name}' is taken apart into a value of type {value.type}, expected {result.type}"
            op.emit_error(message, PassFailedException(message))
    Rewriter.replace_op(op, [], values)
    return made
