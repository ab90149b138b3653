"""The checks of a step, seen from the host: the failed check, its value, and its line in the user's code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.dialects.nn.value_rules import RULES
from aicf_mlir.errors import DataError, NonFiniteError, OutOfRangeError
from aicf_mlir.frontend.source import quoted
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array
from aicf_mlir.interpreters.origin import origin_of_non_finite
from aicf_mlir.ir.division import gradient_names
from aicf_mlir.ir.locations import origin
from aicf_mlir.ir.signature import Label, argument_labels, result_labels, return_op
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.program import TensorPlace

SEARCHED_BYTES = 1 << 32
"""The most bytes of a step's values for which it is run again on the host to find the op that made a number not finite."""

NUMBERS = {0: "nan", 1: "inf", -1: "-inf"}
"""The third number of the status of a check_finite."""


@dataclass(frozen=True)
class Failure:
    """The content of a status: the code of the check, the position of the element in row-major order, its value."""

    code: int
    position: int
    value: int


def take_failure(plan: BoundPlan, place: TensorPlace) -> Failure:
    """Wait for the device, read the status and clear it, so that training can continue."""
    arena = plan.arenas[place[0]]
    if arena.device != "cpu":
        torch.cuda.synchronize(arena.device)
    failure = Failure(*np.frombuffer(arena.read(place[1], 24), np.int64).tolist())
    arena.fill(0)
    if arena.device != "cpu":
        torch.cuda.synchronize(arena.device)
    return failure


def data_error(name: str, plan: BoundPlan, modules: Sequence[ModuleOp], done: str) -> DataError:
    """The error for the check that failed in a step of `plan`; its status is cleared.

    `modules`: the step with its gradients, then the whole step. `done` states the training that took place. The step of several
    ranks may have failed on another one; it is not run again to find the first number that is not finite.
    """
    place = plan.program.status
    failure = Failure(0, 0, 0) if place is None else take_failure(plan, place)
    gradients, step = modules
    checks = [op for op in step.walk() if isinstance(op, nn.CheckOp)]
    voted = next((op for op in checks if isinstance(op, nn.CheckRanksOp)), None)
    if voted is not None:
        rank, code = divmod(failure.code, voted.code.value.data)
        name, failure = f"{name}: rank {rank}", replace(failure, code=code)
    check = next((op for op in checks if failure.code in op.codes), None)
    if isinstance(check, nn.CheckIndexOp):
        return OutOfRangeError(f"{name}: {_out_of_range(check, failure)}. {done}")
    if isinstance(check, nn.CheckFiniteOp):
        index = failure.code - min(op.codes[0] for op in checks if isinstance(op, nn.CheckFiniteOp))
        return NonFiniteError(
            f"{name}: {_not_finite(plan, gradients, index, failure, looked_for=voted is None)}. {done}"
        )
    if isinstance(check, nn.CheckValueOp):
        return DataError(f"{name}: {_refused(plan, step, check, failure)}. {done}")
    return DataError(
        f"{name}: a check failed with code {failure.code}, which this step does not have. {done}"
    )


def _out_of_range(check: nn.CheckIndexOp, failure: Failure) -> str:
    block = check.parent_block()
    readers = [op for op in (block.ops if block else ()) if check.target in op.operands and op is not check]
    size, value, target = check.classes.value.data, failure.value, check.target
    if (wrapped := _before_wrapping(target)) is not None:
        target, value = wrapped, value - size if value < 0 else value
    reader = readers[0] if readers else check
    of_loss = isinstance(reader, nn.CrossEntropyOp | nn.CrossEntropyGradOp)
    wanted = f"{'a class' if of_loss else 'an index'} in {0 if wrapped is None else -size}..{size - 1}"
    if check.ignore_index is not None:
        wanted += f" or ignore_index ({check.ignore_index.value.data})"
    return (
        f"{_at(check)}{'Target' if of_loss else 'Index'} {value} is out of bounds for {_op(reader)}: expected"
        f" {wanted}, got {value} at {_element(target, failure.position)}"
    )


def _refused(plan: BoundPlan, module: ModuleOp, check: nn.CheckValueOp, failure: Failure) -> str:
    value = check.x
    if check.rule.data == "condition":
        return f"{_at(check)}a condition of the step does not hold{': ' * bool(check.of.data)}{check.of.data}"
    found = _number(plan, module, value, failure.position)
    got = "" if found is None else f"{found} "
    wanted = RULES[check.rule.data].wanted
    return f"{_at(check)}{check.of.data}: expected {wanted}, got {got}at {_element(value, failure.position)}"


def _number(plan: BoundPlan, module: ModuleOp, value: SSAValue, position: int) -> str | None:
    """Return the number at this position of an argument of the step; None if it is not known."""
    while isinstance(value.owner, nn.ReshapeOp):
        value = value.owner.x
    if not isinstance(value, BlockArgument):
        return None
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    numbers = _read(plan, argument_labels(function)[value.index])
    return str(numbers.flat[position].item())


def _before_wrapping(index: SSAValue) -> SSAValue | None:
    """Return the user's index, if negative ones count from the end: where(i < 0, i + size, i)."""
    op = index.owner
    if not isinstance(op, CLASSES["where"]):
        return None
    _, moved, given = op.operands
    return given if isinstance(moved.owner, nn.AddOp) and moved.owner.operands[0] is given else None


def _not_finite(plan: BoundPlan, module: ModuleOp, index: int, failure: Failure, *, looked_for: bool) -> str:
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    returned = list(zip(return_op(function).operands, result_labels(function), strict=True))
    losses = [value for value, label in returned if label.role == "loss"]
    if index < len(losses):
        value, what = losses[index], "the loss"
    else:
        name = gradient_names(function)[index - len(losses)]
        params = zip(function.args, argument_labels(function), strict=True)
        gradients = {label.name: value for value, label in params if label.role == "param"}
        gradients |= {label.name: value for value, label in returned if label.role == "grad"}
        value, what = gradients[name], f"the gradient of {name!r}"
    found = f"{what} is {NUMBERS[failure.value]}"
    if shape := shape_of(value):
        found += f" at [{_index(failure.position, shape)}]"
    return f"{_origin(plan, module, function, value)}; {found}" if looked_for else found


def _origin(plan: BoundPlan, module: ModuleOp, function: func.FuncOp, value: SSAValue) -> str:
    """Return the origin of a `value` that is not finite, found by running the step again on the host."""
    held = [*function.args, *(result for op in function.body.block.ops for result in op.results)]
    if sum(8 * math.prod(shape_of(each)) for each in held) > SEARCHED_BYTES:
        return "a number is not finite (the step is too large to look for the first on the host)"
    labels = argument_labels(function)
    found = origin_of_non_finite(module, function, [_read(plan, label) for label in labels], value)
    if found is None and plan.loss.is_cuda:
        return "a number is not finite (not with the batch that is loaded now; synchronize() tells at once)"
    if found is None:
        return "a sum on the way overflows in the precision of the step, though its result would not"
    origin, numbers = found
    position = int(np.flatnonzero(~np.isfinite(numbers.astype(np.float64)))[0])
    number = str(float(numbers.flat[position]))
    if isinstance(origin, BlockArgument):
        return f"{_element(origin, position)} is {number}"
    op = origin.owner
    assert isinstance(op, Operation)
    return f"{_at(op)}{_op(op)} made the first {number}, of finite operands"


def _read(plan: BoundPlan, label: Label) -> Array:
    slot = next(s for s in plan.bound.slots.values() if (s.role, s.name) == (label.role, label.name))
    data = plan.arenas[slot.arena].read(slot.offset, slot.nbytes)
    return np.frombuffer(data, NUMPY_TYPES[slot.dtype]).reshape(slot.shape)


def _op(op: Operation) -> str:
    """Return the op as the user knows it: `cross_entropy`."""
    return op.name.rpartition(".")[2]


def _at(op: Operation) -> str:
    """Return `FILE:LINE, layer PATH: TYPE (`text`): `, or nothing if the line is not known."""
    location = origin(op)
    return "" if location is None else f"{location}{quoted(location)}: "


def _element(value: SSAValue, position: int) -> str:
    """Return the element of `value` as the user knows it: `[3] of the batch's 'label'`."""
    while isinstance(op := value.owner, nn.ReshapeOp):
        value = op.x
    if isinstance(op, Operation):
        return f"[{_index(position, shape_of(value))}] of the result of {_op(op)}"
    function = op.parent_op()
    assert isinstance(function, func.FuncOp) and isinstance(value, BlockArgument)
    label = argument_labels(function)[value.index]
    kind = {"input": "the batch's ", "param": "parameter "}.get(label.role, f"{label.role} ")
    return f"[{_index(position, shape_of(value))}] of {kind}{label.name!r}"


def _index(position: int, shape: tuple[int, ...]) -> str:
    """Return the position in row-major order as indices: `3, 1`."""
    return ", ".join(str(int(i)) for i in np.unravel_index(position, shape)) if shape else ""
