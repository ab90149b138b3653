"""The part of a verified file that can run: it is checked, with errors at the op that cannot run, or lowered to the plan of
its step.
"""

from __future__ import annotations

from typing import NoReturn, cast

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Operation
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.plan import ProgramOp, find_program
from aicf_mlir.dialects.scalar import BodyOp
from aicf_mlir.dialects.train import BackwardOp
from aicf_mlir.errors import PlanError
from aicf_mlir.interpreters import IMPLEMENTATIONS
from aicf_mlir.ir.dtypes import element_name
from aicf_mlir.ir.signature import result_keys, result_labels, return_op, steps
from aicf_mlir.ir.tensor_op import AnyTensor
from aicf_mlir.stages import next_stage, run_stages


def refuse(op: Operation, message: str) -> NoReturn:
    """Raise VerifyException at `op`."""
    op.emit_error(message, VerifyException(message))


def check_runnable(module: ModuleOp) -> None:
    """Raise VerifyException at the first op that cannot run.

    A file holds one plan.program, or one function with a body. In addition it may hold only declarations, private functions,
    which belong to it as the update of an optimizer does, and the bodies of generated kernels. A function is one block of ops of
    nn, optim and kernel on tensors of static shape; it calls nothing.
    """
    beside = [
        op
        for op in module.ops
        if isinstance(op, BodyOp) or (isinstance(op, func.FuncOp) and op not in steps(module))
    ]
    bodies = [op for op in module.ops if op not in beside]
    for op in bodies:
        if not isinstance(op, func.FuncOp | ProgramOp):
            refuse(op, "only a function or a plan.program can run; remove the other operations")
    for op in bodies[1:]:
        refuse(op, "expected one function or one plan.program to run, got a second; remove all others")
    if bodies and isinstance(function := bodies[0], func.FuncOp):
        check_function(function)


def without_private(module: ModuleOp) -> None:
    """Remove the private functions that a function lowered on its own does not need: the update of an optimizer that is not
    applied.
    """
    bodies = [op for op in module.ops if isinstance(op, func.FuncOp) and not op.is_declaration]
    for function in [op for op in bodies if op not in steps(module)]:
        function.detach()
        function.erase()


def check_function(function: func.FuncOp) -> None:
    """Check arguments and ops of the one function."""
    last = return_op(function)
    block = function.body.block
    check_arguments(function, block)
    for op in block.ops:
        if op is last:
            continue
        if isinstance(op, func.CallOp):
            refuse(op, f"calls are not run: write the ops of @{op.callee.string_value()} in its place")
        if op.dialect_name() not in IMPLEMENTATIONS or op.regions:
            known = ", ".join(IMPLEMENTATIONS)
            refuse(op, f"'{op.name}' has no meaning to run; expected ops of {known}")
        for kind in (*op.operand_types, *op.result_types):
            if (why := unsupported(kind)) is not None:
                refuse(op, why)


def check_arguments(function: func.FuncOp, block: Block) -> None:
    """Check the types of the arguments."""
    for argument in block.args:
        if (why := unsupported(argument.type)) is not None:
            refuse(function, f"@{function.sym_name.data} has an argument of type {argument.type}; {why}")


def unsupported(kind: Attribute) -> str | None:
    """The reason why values of a type cannot be computed with, or None."""
    if not isinstance(kind, TensorType):
        return f"only tensors of static shape run, not {kind}"
    tensor = cast(AnyTensor, kind)
    if any(extent < 0 for extent in tensor.get_shape()):
        return f"only tensors of static shape run, not {kind}"
    try:
        element_name(tensor.get_element_type())
    except VerifyException as error:
        return str(error)
    return None


def make_planned(module: ModuleOp, context: Context, target: str | None = None) -> ProgramOp:
    """The one plan of the verified `module`, which is lowered in place for `target` (cpu) if it is no plan yet.

    A step is differentiated and given its optimizer unless that is already done. Raises PlanError for a module with a plan for
    another target or without exactly one step, and the errors of passes.
    """
    first = unfinished_stage(module)
    if first in (None, "plan"):
        program = find_program(module)
        if target not in (None, planned_for := program.target.data):
            message = f"the plan is for target {planned_for} and not for {target}: leave --target out"
            program.emit_error(message, PlanError(message))
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
