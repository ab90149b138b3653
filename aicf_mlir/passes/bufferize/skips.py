"""Launches that may be skipped after a failed check: the ones that do nothing but update."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.signature import STATUS, ArgumentIndex, argument_labels, result_labels, return_op

SKIPPABLE = (
    *(kernel.AdvanceOp, kernel.SgdStepOp, kernel.AdamStepOp, kernel.CopyOp),
    *(kernel.MapOp, kernel.MultiTensorMapOp, kernel.RowwiseOp, kernel.MultiTensorRowwiseOp, kernel.ColwiseOp),
)


def skippable_ops(function: FuncOp, in_place: Callable[[SSAValue, BlockArgument], bool]) -> set[Operation]:
    """The ops after the last check whose every result is an update of an argument, in its place, and nothing else.

    `in_place` tells if a value may be written to the memory of an argument: a skipped launch would leave another result without a
    value.

    Only kinds whose CUDA kernels look at a status: the others run, and a copy at the end is skipped.

    A result may also be read by another skippable op: if both are skipped, nothing is half done. Empty for a function without a
    status.
    """
    terminator = return_op(function)
    returned = list(zip(terminator.operands, result_labels(function), strict=True))
    if not any(label.role == STATUS for _, label in returned):
        return set()
    arguments = ArgumentIndex(argument_labels(function))
    updates = {
        kernel.block_of(value)
        for value, label in returned
        if label.role == "update" and in_place(value, function.args[arguments.updated_by(label)[0]])
    }
    others = {kernel.block_of(value) for value, label in returned if label.role != "update"}
    checks = {kernel.block_of(value).owner for value, label in returned if label.role == STATUS}
    skippable: set[Operation] = set()
    for op in reversed(list(function.body.block.ops)):
        if op in checks:
            break
        if not isinstance(op, SKIPPABLE):
            continue
        updates_only = all(result in updates and result not in others for result in op.results)
        if updates_only and all(user in skippable for result in op.results for user in _users(result)):
            skippable.add(op)
    return skippable


def _users(value: SSAValue) -> list[Operation]:
    """The ops that read the memory of `value`, also through a view; the terminator is none of them."""
    users: list[Operation] = []
    for use in value.uses:
        op = use.operation
        if isinstance(op, kernel.VIEWS):
            users += _users(op.output)
        elif not isinstance(op, ReturnOp):
            users.append(op)
    return users
