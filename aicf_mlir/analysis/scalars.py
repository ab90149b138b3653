"""Every scalar of a step, its origin and its state: no value that a user may want to change is frozen unseen.

    host_scalar  an argument that the host writes before each step: hyperparameters, and Python numbers named with `meta=`
    guarded      a Python value that the trace has read; the step refuses to run when it has changed
    literal      a number that is written in the user's line, or a tensor of them
    computed     made from literals, shapes and guarded values: by Python, or by the compiler (the 1.0 where backward starts)
    default      an attribute with the value that the op has where nobody gives one

A constant without a source line is none of these and is refused, as is a hyperparameter of an update that is no host scalar.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from xdsl.dialects import func
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, i1
from xdsl.ir import Attribute, BlockArgument, Operation, OpResult, SSAValue
from xdsl.irdl import OperandDef, VarOperandDef
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, parse_groups
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.ir.locations import origin
from aicf_mlir.ir.signature import argument_labels
from aicf_mlir.optimizers import HOST_SCALARS, LAUNCHES, VECTORS
from aicf_mlir.optimizers.advance import AdvanceOp
from aicf_mlir.optimizers.op import HYPERPARAMETER, OptimOp
from aicf_mlir.optimizers.pointwise import ScalarsOp

_STRUCTURE = ("workspace", "index", "site")
"""Integer properties that are sizes and positions, no part of an op's computation."""


@dataclass(frozen=True)
class Scalar:
    """One row of the table."""

    name: str
    """The name of the argument; the path of a guarded value; else the op and, for an attribute, its name."""
    value: float | int | str
    kind: str
    source: str
    """The user's file and line; "the optimizer" for hyperparameters."""
    used_by: tuple[str, ...]
    """Names of the ops that read it."""


def scalars(
    module: ModuleOp, guarded: Mapping[str, object] | None = None, live: Collection[str] = ()
) -> list[Scalar]:
    """The scalars of the functions in `module`, of any stage above the plan.

    `guarded` holds the Python values that the trace has read, by path; `live` has the names of the buffers that are Python
    numbers made host scalars. Raises VerifyException at the first scalar that is frozen
    without a known source.
    """
    watched = {path: value for path, value in (guarded or {}).items() if _is_number(value)}
    rows: list[Scalar] = []
    for function in module.walk():
        if isinstance(function, func.FuncOp) and not function.is_declaration:
            rows += _arguments(function, live)
            rows += _flags(function)
            for op in function.walk():
                check_update(op)
                rows += _constants(op, watched)
    return _merged(rows)


def check_update(op: Operation) -> None:
    """Raise VerifyException if an update reads a hyperparameter that is no host scalar of the step."""
    if isinstance(op, LaunchOp):
        _check_launch(op)
    for name, value in _hyperparameters(op):
        if isinstance(value, BlockArgument) and _role(value) in ("", "host_scalar", "state"):
            continue
        if isinstance(value, OpResult) and isinstance(value.op, AdvanceOp | ScalarsOp | kernel.AdvanceOp):
            continue
        _refuse(
            op,
            f"expected {name} to be a host scalar, which follows the param group, got {_describe(value)}: "
            "a hyperparameter that is baked in would ignore the optimizer",
        )


def _hyperparameters(op: Operation) -> Iterator[tuple[str, SSAValue]]:
    """The operands of an update that the host sets, by name."""
    if isinstance(op, OptimOp):
        for name, definition in op.get_irdl_definition().operands:
            value: Any = getattr(op, name)
            if type(definition) is OperandDef:
                if name in HOST_SCALARS:
                    yield name, value
            elif type(definition) is VarOperandDef:
                yield from ((f"an operand of {name}", v) for v in value if _is_from_host(v))
    elif isinstance(op, KernelOp) and op.op_name in LAUNCHES:
        for name, values in op.ins.items():
            if name in HOST_SCALARS | VECTORS:
                yield from ((name, value) for value in values if _is_from_host(value))


def _is_from_host(value: SSAValue) -> bool:
    """True if an operand after the tensors of an update must be a live one: a scalar, or a constant in the place of a vector."""
    return value.type == HYPERPARAMETER or isinstance(value.owner, nn.ConstantOp | kernel.ConstantOp)


def _check_launch(launch: LaunchOp) -> None:
    program = launch.parent_op()
    if launch.op.data not in LAUNCHES or not isinstance(program, ProgramOp):
        return
    read = [
        (operand, name)
        for operand, names in launch.ins.items()
        if operand in HOST_SCALARS | VECTORS
        for name in names
    ]
    for operand, name in read:
        slot = program.slots.get(name)
        if slot is not None and slot.role.data == "const":
            _refuse(
                launch,
                f"@{launch.symbol} reads the constant @{name} as {operand}; expected a host scalar, which follows the param"
                " group: a hyperparameter that is baked in would ignore the optimizer",
            )


def _role(argument: BlockArgument) -> str:
    function = argument.owner.parent_op()
    return argument_labels(function)[argument.index].role if isinstance(function, func.FuncOp) else ""


def _describe(value: SSAValue) -> str:
    if isinstance(value, BlockArgument):
        return f"an argument of role {_role(value)}"
    op = value.owner
    if isinstance(op, nn.ConstantOp | kernel.ConstantOp):
        return f"the constant {op.value.value.data}"
    return f"a result of {op.name}" if isinstance(op, Operation) else "no argument"


def _arguments(function: func.FuncOp, live: Collection[str]) -> Iterator[Scalar]:
    """Host scalars, and tensors of literals."""
    for argument, label in zip(function.args, argument_labels(function), strict=True):
        users = [use.operation for use in argument.uses]
        if label.role == "host_scalar":
            yield Scalar(label.name, "live", "host_scalar", "the optimizer or the host", _names(users))
        elif label.role == "buffer" and label.name in live:
            yield Scalar(label.name, "live", "host_scalar", "Python", _names(users))
        elif label.is_literal:
            sources = [source for op in users if (source := _source(op))]
            where = sources[0] if sources else "the model"
            yield Scalar(label.name, str(argument.type), "literal", where, _names(users))


def _flags(function: func.FuncOp) -> Iterator[Scalar]:
    """The compiled-in parts of the param groups; the host refuses to run when they change."""
    if OPTIMIZER not in function.attributes:
        return
    for index, group in enumerate(parse_groups(function.attributes[OPTIMIZER])):
        for flag, value in group.rule.flags.items():
            name = f"param_groups[{index}].{flag}"
            yield Scalar(name, str(value).lower(), "guarded", "the optimizer", (group.rule.KIND,))


def _constants(op: Operation, watched: Mapping[str, object]) -> Iterator[Scalar]:
    """The scalars in the properties and attributes of one op; none of a constant that is data, the site of a draw."""
    if isinstance(op, kernel.ConstantOp) and op.data is not None:
        return
    defaults = {name: d.default_value for name, d in _property_definitions(op)}
    absent = {name: value for name, value in defaults.items() if value is not None}
    given: dict[str, Attribute] = {**absent, **op.attributes, **op.properties}
    for name, attribute in given.items():
        number: Any = attribute
        is_number = isinstance(attribute, FloatAttr | IntegerAttr) and number.type != i1
        if not is_number or "." in name or name in _STRUCTURE:
            continue
        value: float | int = number.value.data
        is_constant = isinstance(op, nn.ConstantOp | kernel.ConstantOp)
        users = _names(use.operation for use in op.results[0].uses) if is_constant else (op.name,)
        title = op.name if is_constant else f"{op.name} {name}"
        if attribute == defaults.get(name):
            yield Scalar(title, value, "default", _source(op) or "the op", users)
            continue
        source = _source(op)
        if source is None:
            _refuse(
                op,
                f"expected a known source of the {'constant' if is_constant else name} {value}, got none: "
                "a number that nobody wrote may be a value that somebody wants to change",
            )
        paths = [path for path, guarded in watched.items() if _same(guarded, value)]
        if paths:
            yield Scalar(" or ".join(paths), value, "guarded", source, users)
        elif value in _numbers_at(op):
            yield Scalar(title, value, "literal", source, users)
        else:
            yield Scalar(title, value, "computed", source, users)


def _property_definitions(op: Operation) -> Iterator[tuple[str, Any]]:
    definition: Any = getattr(type(op), "get_irdl_definition", None)
    if definition is not None:
        yield from definition().properties.items()


def _source(op: Operation) -> str | None:
    found = origin(op)
    return found and found.file_and_line


def _numbers_at(op: Operation) -> frozenset[float]:
    """The numbers that are written in the user's statement that `op` comes from, with either sign."""
    if (found := origin(op)) is None:
        return frozenset()
    spans = [span for span in _numbers_of(found.file) if span[0] <= found.line <= span[1]]
    if not spans:
        return frozenset()
    return min(spans, key=lambda span: span[1] - span[0])[2]


@lru_cache(maxsize=64)
def _numbers_of(file: str) -> tuple[tuple[int, int, frozenset[float]], ...]:
    """First line, last line and numbers of every statement of a Python file; nothing for any other file."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[tuple[int, int, frozenset[float]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            numbers = {
                float(sign * inner.value)
                for inner in ast.walk(node)
                if isinstance(inner, ast.Constant)
                and isinstance(inner.value, int | float)
                and not isinstance(inner.value, bool)
                and abs(inner.value) <= _LARGEST
                for sign in (1, -1)
            }
            found.append((node.lineno, node.end_lineno or node.lineno, frozenset(numbers)))
    return tuple(found)


_LARGEST = 1e308
"""Integers beyond this have no float."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(guarded: Any, value: float) -> bool:
    return guarded == value or (math.isnan(guarded) and math.isnan(value))


def _names(users: Iterable[Operation]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(op.name for op in users))


def _merged(rows: Iterable[Scalar]) -> list[Scalar]:
    """Equal rows once, with all their users."""
    users: dict[tuple[str, str, str, str], list[str]] = {}
    first: dict[tuple[str, str, str, str], Scalar] = {}
    for row in rows:
        key = (row.name, repr(row.value), row.kind, row.source)
        first.setdefault(key, row)
        users.setdefault(key, []).extend(row.used_by)
    return [
        Scalar(r.name, r.value, r.kind, r.source, tuple(dict.fromkeys(users[key])))
        for key, r in first.items()
    ]


def table(rows: Iterable[Scalar]) -> str:
    """The rows as text, with a heading."""
    lines = [("name", "value", "kind", "source", "used by")]
    lines += [(r.name, str(r.value), r.kind, r.source, ", ".join(r.used_by) or "nothing") for r in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[4]]) + "\n"
        for line in lines
    )


def _refuse(op: Operation, message: str) -> NoReturn:
    op.emit_error(message, VerifyException(message))
