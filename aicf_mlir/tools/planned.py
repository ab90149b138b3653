"""A plan from a file of any stage, as `aicf-opt --stage plan` makes one of a traced step."""

from __future__ import annotations

from typing import NoReturn

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.train import BackwardOp
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.signature import result_keys, result_labels, steps
from aicf_mlir.stages import next_stage, run_stages
from aicf_mlir.tools.runnable import without_private


def make_planned(module: ModuleOp, context: Context, target: str | None = None) -> ProgramOp:
    """The one plan of the verified `module`, which is lowered in place for `target` (cpu) where it is no plan yet.

    A step is differentiated and given its optimizer where that is still to be done. Raises PlanError for a module
    with a plan for another target or without exactly one step, and what passes raise.
    """
    first = unfinished_stage(module)
    if first in (None, "plan"):
        program = find_program(module)
        if target not in (None, planned_for := program.target.data):
            _refuse(program, f"the plan is for target {planned_for} and not for {target}: leave --target out")
        target = planned_for
    elif len(found := steps(module)) != 1:
        raise PlanError(f"expected one function or one plan.program to draw, got {len(found)} functions")
    elif first not in ("nn", "step"):
        without_private(module)
    if first is not None:
        run_stages(module, context, target=target or "cpu", first=first)
    return find_program(module)


def unfinished_stage(module: ModuleOp) -> str | None:
    """The first stage that `module` still needs to become the plan of its whole step; None for a plan.

    A function without a loss has nothing to train: it is lowered as it is.
    """
    stage, dialects = next_stage(module), {op.dialect_name() for op in module.walk()}
    if stage != "lowered" or "optim" in dialects:
        return stage
    if "train" in dialects:  # the body of a loop, which may return parameters from the start
        return "nn" if any(isinstance(op, BackwardOp) for op in module.walk()) else "step"
    results = {role for function in steps(module) for role, _ in result_keys(function)}
    labels = {label.role for function in steps(module) for label in result_labels(function)}
    if "param" in results or "loss" not in labels:
        return stage
    return "step" if "grad" in results else "nn"


def _refuse(op: Operation, message: str) -> NoReturn:
    op.emit_error(message, PlanError(message))
