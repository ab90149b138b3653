"""Comparisons of a type with a class of tensors: `type(x) is torch.Tensor` is false for the tensors of a trace alone."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Set
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from aicf_mlir.frontend.source import is_users_file, quoted, trace_error
from aicf_mlir.ir.locations import SourceLocation

COMPARISONS = ("IS_OP", "COMPARE_OP", "CONTAINS_OP")


def refuse_type_tests(functions: Iterable[object], again: Callable[[], object]) -> None:
    """Raise TraceError for the first comparison in the user's code among `functions` that has run.

    `again` runs the same code once more, while the lines that run are noted: only then, since that is slow.
    """
    found = [
        (code, location)
        for function in functions
        if type(function) is FunctionType and is_users_file(function.__code__.co_filename)
        for code in _codes(function.__code__)
        for location in _tests_in(code, function)
    ]
    if not found:
        return
    with _lines_run({code for code, _ in found}) as ran:
        if ran is not None:
            again()
    for code, location in found:
        if ran is None or (code, location.line) in ran:
            raise trace_error(
                f"the step compares the type of a value with a class of tensors{quoted(location)}, and the tensors of a"
                " trace have types of their own; use isinstance",
                location,
            )


@contextmanager
def _lines_run(codes: Set[CodeType]) -> Generator[set[tuple[CodeType, int]] | None]:
    """Note which lines of these codes this thread runs; None if a debugger or a coverage tool notes lines already."""
    if sys.gettrace() is not None:
        yield None
        return
    ran = set[tuple[CodeType, int]]()

    def noted(frame: FrameType, event: str, given: object) -> Any:
        if frame.f_code not in codes:
            return None
        ran.add((frame.f_code, frame.f_lineno))
        return noted

    sys.settrace(noted)
    try:
        yield ran
    finally:
        sys.settrace(None)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _codes(constant)


def _tests_in(code: CodeType, function: FunctionType) -> Iterator[SourceLocation]:
    """The lines of the comparisons in a code of this function."""
    if "type" not in code.co_names and "__class__" not in code.co_names:
        return
    for instruction in dis.get_instructions(code):
        if instruction.opname in COMPARISONS and (where := instruction.positions) and where.lineno:
            comparison = _expression(code.co_filename, where)
            if isinstance(comparison, ast.Compare) and _is_type_test(comparison, function):
                yield SourceLocation(code.co_filename, where.lineno)


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
