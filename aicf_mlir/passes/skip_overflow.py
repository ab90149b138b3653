"""Skip a step whose scaled gradients overflow: it changes neither parameter nor optimizer state, since its updates are not
taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects.nn.emitter import Emitter, location_of
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.ir.roles import OPTIMIZED_ROLES
from aicf_mlir.ir.signature import (
    ArgumentIndex,
    Label,
    argument_labels,
    result_labels,
    return_op,
    set_results,
    steps,
)
from aicf_mlir.passes.autodiff import refuse
from aicf_mlir.passes.scale_loss import FINITE


@dataclass(frozen=True)
class SkipOverflowPass(ModulePass):
    """Let every update of a parameter, state or host scalar be the old value where "all_finite" of scale-loss is false.

    The pass belongs after apply-optimizer. The output is gone afterwards. Counters of steps are among the updates, so that a
    skipped step does not count.
    """

    name = "skip-overflow"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            skip(function)


def skip(function: func.FuncOp) -> None:
    """Guard the updates of one function."""
    results = list(zip(return_op(function).operands, result_labels(function), strict=True))
    finite = [value for value, label in results if is_told(label)]
    if not finite:
        refuse(function, f'@{function.sym_name.data} has no output named "{FINITE}"; run scale-loss first')
    emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
    labels = argument_labels(function)
    index_of = ArgumentIndex(labels)

    def kept(value: SSAValue, label: Label) -> SSAValue:
        index = index_of.updated_by(label)[0] if label.role == "update" else None
        if index is None or labels[index].role not in OPTIMIZED_ROLES:
            return value
        emitter.location = location_of(value)
        old = function.args[index]
        return emitter.emit(CLASSES["where"](finite[0], value, old), f"{old.name_hint or 'value'}.kept")

    set_results(function, [(kept(value, label), label) for value, label in results if not is_told(label)])


def is_told(label: Label) -> bool:
    """True if a result is that output."""
    return (label.role, label.name) == ("output", FINITE)
