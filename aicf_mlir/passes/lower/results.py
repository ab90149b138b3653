"""Every function result gets memory of its own, so that bufferize can have its launch write anywhere."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.signature import (
    STATUS,
    ArgumentIndex,
    argument_labels,
    result_labels,
    return_op,
)

WRITTEN = (KernelOp, kernel.JoinOp)
"""Ops whose results launches write."""


def give_results_memory(module: ModuleOp) -> None:
    """Insert a kernel.copy if a result is not the memory of a launch, or is that of another result too.

    The rule holds for arguments, constants and values that are returned twice, also through reshapes. An argument that is its own
    update, or the status without a check, needs none: nothing changes.
    """
    for function in module.ops:
        if isinstance(function, FuncOp) and function.body.blocks:
            _copy_results(function)


def _copy_results(function: FuncOp) -> None:
    terminator, arguments = return_op(function), ArgumentIndex(argument_labels(function))
    taken: set[SSAValue] = set()
    for index, (value, label) in enumerate(zip(terminator.operands, result_labels(function), strict=True)):
        if label.role == STATUS and isinstance(value, BlockArgument):
            continue
        if label.role == "update" and isinstance(value, BlockArgument):
            if value.index in arguments.updated_by(label):
                continue
        elif isinstance((owner := kernel.block_of(value)).owner, WRITTEN) and owner not in taken:
            taken.add(owner)
            continue
        copy = kernel.CopyOp.launch([value], [value.type])
        copy.location = terminator.location
        function.body.block.insert_op_before(copy, _place_of_copy(value, terminator))
        terminator.operands[index] = copy.results[0]


def _place_of_copy(value: SSAValue, terminator: Operation) -> Operation:
    """The op before which the copy of `value` is made. An argument is copied first, so that the update may take its place."""
    if not isinstance(kernel.block_of(value), BlockArgument):
        return terminator
    following = value.owner.next_op if isinstance(value.owner, Operation) else value.owner.first_op
    return following or terminator
