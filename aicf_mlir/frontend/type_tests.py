"""Comparisons of a type with a class of tensors: `type(x) is torch.Tensor` is false for the tensors of a trace alone."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from aicf_mlir.frontend.source import is_users_file, quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

COMPARISONS = ("IS_OP", "COMPARE_OP", "CONTAINS_OP")


def refuse_type_tests(functions: Iterable[object]) -> None:
    """Raise TraceError for the first comparison in the user's code among `functions`."""
    for function in functions:
        if type(function) is FunctionType and is_users_file(function.__code__.co_filename):
            for code in _codes(function.__code__):
                _refuse_in(code, function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _codes(constant)


def _refuse_in(code: CodeType, function: FunctionType) -> None:
    if "type" not in code.co_names and "__class__" not in code.co_names:
        return
    for instruction in dis.get_instructions(code):
        if instruction.opname in COMPARISONS and (where := instruction.positions) and where.lineno:
            comparison = _expression(code.co_filename, where)
            if isinstance(comparison, ast.Compare) and _is_type_test(comparison, function):
                location = SourceLocation(code.co_filename, where.lineno)
                raise trace_error(
                    f"the step compares the type of a value with a class of tensors{quoted(location)}, and the tensors of a"
                    " trace have types of their own; use isinstance",
                    location,
                )


def _expression(file: str, where: dis.Positions) -> ast.expr | None:
    """Return the expression at this place of a file, if its text is there."""
    first, last, start, end = where.lineno, where.end_lineno, where.col_offset, where.end_col_offset
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(file, line).encode() for line in range(first, last + 1)]  # columns are bytes
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _is_type_test(comparison: ast.Compare, function: FunctionType) -> bool:
    sides = [comparison.left, *comparison.comparators]
    return any(map(_is_type, sides)) and any(_names_tensors(side, function) for side in sides)


def _is_type(node: ast.expr) -> bool:
    """True for `type(x)` and `x.__class__`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type" and len(node.args) == 1
    return isinstance(node, ast.Attribute) and node.attr == "__class__"


def _names_tensors(node: ast.expr, function: FunctionType) -> bool:
    """True if an expression names a class of tensors, or a collection with one."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(_names_tensors(each, function) for each in node.elts)
    value = _value(node, function)
    members: Iterable[Any] = value if type(value) in (tuple, list, set, frozenset) else (value,)
    return any(
        issubclass(type(each), type) and torch.Tensor in type.__dict__["__mro__"].__get__(each)
        for each in members
    )


def _value(node: ast.expr, function: FunctionType) -> Any:
    """Return what a name with attributes holds, without running code; None if that is not known."""
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_value(node.value, function), node.attr, None)
    if not isinstance(node, ast.Name):
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if node.id in cells:
        try:
            return cells[node.id].cell_contents
        except ValueError:  # it is empty
            return None
    return function.__globals__.get(node.id)
