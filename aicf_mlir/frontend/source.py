"""Where in the user's own code something happened.

A frame is the user's unless it lies in torch, in this package, in the standard library, in an installed
command, or in code without a file. Positions arrive in three ways: the running frame, the traceback of an
exception, and the text `node.stack_trace` that torch.export keeps with each node.
"""

from __future__ import annotations

import inspect
import linecache
import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, TypeVar

import torch
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, LocationAttr, StringAttr, UnknownLoc

from aicf_mlir.errors import TraceError

Result = TypeVar("Result")

_PACKAGE = Path(__file__).resolve().parents[1]
_TORCH = Path(torch.__file__).resolve().parent
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_SCRIPTS = Path(sysconfig.get_path("scripts")).resolve()
_STACK_TRACE_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in ', re.MULTILINE)


@dataclass(frozen=True)
class SourceLocation:
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def attribute(self) -> LocationAttr:
        """The location of an op; the column is not known, so it is the first."""
        return FileLineColLoc(StringAttr(self.file), IntAttr(self.line), IntAttr(1))


def location_attribute(location: SourceLocation | None) -> LocationAttr:
    """The op location of `location`, or MLIR's unknown location."""
    return UnknownLoc() if location is None else location.attribute


@cache
def is_users_file(file: str) -> bool:
    """Whether `file`, as a code object names it, holds code of the user."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    if any(path.is_relative_to(folder) for folder in (_TORCH, _PACKAGE, _SCRIPTS)):
        return False
    return not path.is_relative_to(_STANDARD_LIBRARY) or "site-packages" in path.parts


def here() -> SourceLocation | None:
    """The innermost line of the user's code that is running."""
    frame = inspect.currentframe()
    while frame is not None:
        if is_users_file(frame.f_code.co_filename):
            return SourceLocation(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def of_function(function: Callable[..., object]) -> SourceLocation | None:
    """Where a function of the user begins."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or not is_users_file(code.co_filename):
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno)


def of_traceback(traceback: TracebackType | None) -> SourceLocation | None:
    """The innermost line of the user's code that an exception passed through."""
    found = None
    while traceback is not None:
        if is_users_file(file := traceback.tb_frame.f_code.co_filename):
            found = SourceLocation(file, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def of_stack_trace(stack_trace: str | None) -> SourceLocation | None:
    """The innermost line of the user's code in the text of a stack, outermost frame first."""
    frames = [(f["file"], int(f["line"])) for f in _STACK_TRACE_FRAME.finditer(stack_trace or "")]
    return next((SourceLocation(*frame) for frame in reversed(frames) if is_users_file(frame[0])), None)


def call_at(
    location: SourceLocation | None, function: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result:
    """Call `function` from a frame that stands at `location`, as `here` and every stack trace will show."""
    caller = _caller_at(location) if location else None
    return caller(function, *args, **kwargs) if caller else function(*args, **kwargs)


@cache
def _caller_at(location: SourceLocation) -> Callable[..., Any]:
    """The frame is that of a function called `forward`: torch.export drops the lines of all others."""
    namespace: dict[str, Any] = {}
    text = "def forward(function, *args, **kwargs): return function(*args, **kwargs)"
    exec(compile("\n" * (location.line - 1) + text, location.file, "exec"), namespace)
    return namespace["forward"]


def quoted(location: SourceLocation | None) -> str:
    """The line itself as ` (`text`)`, for the middle of a message; empty if it is not known."""
    text = linecache.getline(location.file, location.line).strip() if location else ""
    return f" (`{text if len(text) <= 80 else text[:79] + '…'}`)" if text else ""


def trace_error(message: str, location: SourceLocation | None = None) -> TraceError:
    """The error `FILE:LINE: message`, or just `message` where no line is known."""
    return TraceError(message if location is None else f"{location}: {message}")
