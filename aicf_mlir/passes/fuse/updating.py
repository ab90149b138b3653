"""The launches that lead only to the updates of a step."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue, Use

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_formulas import FORMULAS, ROWS
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.signature import result_labels, return_op
from aicf_mlir.optimizers import LAUNCHES

GATHERS: Mapping[type[Operation], int] = {kernel.AllGatherOp: 1, kernel.AllGatherStatusOp: 2}
COLLECTIVES: Mapping[type[Operation], int] = {
    **GATHERS,
    kernel.AllToAllOp: 1,
    kernel.AllReduceOp: 1,
    kernel.AllReduceStatusOp: 2,
}
"""The collectives, and how many operands each reads: the others are there for order."""

LAST_ROLES = ("update", "grad", "output")
"""The roles of results that nothing else depends on; the norm of gradient clipping is an output."""


def updating(function: FuncOp) -> list[Operation]:
    """The launches whose results lead only to updates and returned values of `function` other than the loss, in the order of the
    text. What a rank updates may go through a gather, by which the others get it.
    """
    end, labels = return_op(function), result_labels(function)
    ops, found = list(function.body.block.ops), set[Operation]()

    def leads(value: SSAValue) -> bool:
        return all(
            labels[use.index].role in LAST_ROLES
            if use.operation is end
            else leads(use.operation.results[0])
            if isinstance(use.operation, kernel.VIEWS)
            else use.operation in found or is_order(use)
            for use in value.uses
        )

    for op in reversed(ops):
        moves = type(op) in GATHERS and is_moved(op.results[0])
        given = op.results[:1] if moves else op.results  # the statuses of ranks lead to checks
        if (moves or is_loop(op)) and all(map(leads, given)):
            found.add(op)
    return [op for op in ops if op in found and is_loop(op)]


def is_order(use: Use) -> bool:
    """True if a collective waits for the value, and reads none of it."""
    return use.index >= COLLECTIVES.get(type(use.operation), use.index + 1)


def is_moved(value: SSAValue) -> bool:
    """True if launches only copy `value`, and none computes with it."""
    return all(
        isinstance(use.operation, ReturnOp)
        or is_order(use)
        or (isinstance(use.operation, (kernel.CopyOp, *kernel.VIEWS)) and is_moved(use.operation.results[0]))
        for use in value.uses
    )


def updates(function: FuncOp) -> list[Operation]:
    """The launches that give the updates of `function`."""
    labels = result_labels(function)
    given = zip(return_op(function).operands, labels, strict=True)
    return [
        value.owner for value, label in given if label.role == "update" and isinstance(value.owner, Operation)
    ]


def is_loop(op: Operation) -> bool:
    """True if `op` is a launch of the optimizer, or one without products, such as a norm."""
    loops = {*LAUNCHES, *FORMULAS, *ROWS, "copy", "reduce_sum"}
    generated = isinstance(op, GeneratedOp) and not isinstance(op, kernel.GemmMapOp | kernel.BackToBackOp)
    return generated or (isinstance(op, KernelOp) and op.op_name in loops)
