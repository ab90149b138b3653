"""Positions in the user's own code.

A frame is the user's unless its code is in torch, in this package, in the standard library, in an installed command, or
in code that one of these has generated. A notebook's cell, standard input and code that the user gives to exec are the
user's too: their files are called `<ipython-input-3-…>`, `<stdin>` or `<string>`. Positions arrive in three ways: the
running frame, the traceback of an exception, and the text `node.stack_trace` that torch.export keeps with each node.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, TypeVar

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.ir.locations import SourceLocation

Result = TypeVar("Result")

_PACKAGE = Path(__file__).resolve().parents[1]
OURS = str(Path(__file__).parents[1]) + os.sep
"""What the file names of AICF's own code begin with, as code objects have them."""
_TORCH = Path(torch.__file__).resolve().parent
_LIBRARIES = {"torch", _PACKAGE.name, *sys.stdlib_module_names}
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_SCRIPTS = Path(sysconfig.get_path("scripts")).resolve()
_GENERATED = re.compile(
    r"<(frozen |eval_with_key|attrs generated|lambdifygenerated|decorator-gen|__array_function__|__\w+__>"
    r"|template|unknown|torch_package|fx[-_])"
)
"""Names of code that libraries generate."""
_KEPT_STRING = "<string of exec>"
"""The name that replaces `<string>`, whose frames torch leaves out of its stack traces."""
_STACK_TRACE_FRAME = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in ', re.MULTILINE)


@cache
def is_users_file(file: str) -> bool:
    """True if `file`, as a code object names it, holds code of the user."""
    if file.startswith("<"):
        return _GENERATED.match(file) is None
    path = Path(file).resolve()
    if any(path.is_relative_to(folder) for folder in (_TORCH, _PACKAGE, _SCRIPTS)):
        return False
    return not path.is_relative_to(_STANDARD_LIBRARY) or "site-packages" in path.parts


def is_installed(file: str) -> bool:
    """True if `file` belongs to an installed package."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def is_users_frame(frame: FrameType) -> bool:
    """True if the user's code runs in `frame`; code without a file belongs to the module whose globals it has."""
    code = frame.f_code
    if not is_users_file(code.co_filename):
        return False
    if not code.co_filename.startswith("<"):
        return True
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    is_dataclass_method = code.co_qualname.startswith("__create_fn__")
    is_wrapper_of_torch = not package and code.co_name == "<lambda>"
    is_library = package in _LIBRARIES and package != "__main__"
    return not (is_dataclass_method or is_wrapper_of_torch or is_library)


def here() -> SourceLocation | None:
    """The innermost line of the user's code that is running."""
    frame = inspect.currentframe()
    while frame is not None:
        if is_users_frame(frame):
            return SourceLocation(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def is_inside(package: ModuleType) -> bool:
    """True if the innermost running line of the user's code is in a call of code in the folder of `package`."""
    folder = Path(package.__file__ or "").resolve().parent
    frame = inspect.currentframe()
    while frame is not None and not is_users_frame(frame):
        if Path(frame.f_code.co_filename).is_relative_to(folder):
            return True
        frame = frame.f_back
    return False


def of_function(function: Callable[..., object]) -> SourceLocation | None:
    """Return the first line of a user's function."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or not is_users_file(code.co_filename):
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno)


def of_traceback(traceback: TracebackType | None) -> SourceLocation | None:
    """The innermost line of the user's code that an exception passed through."""
    location = None
    while traceback is not None:
        if is_users_frame(traceback.tb_frame):
            location = SourceLocation(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return location


def of_stack_trace(stack_trace: str | None) -> SourceLocation | None:
    """The innermost line of the user's code in the text of a stack, outermost frame first."""
    found = ((f["file"], int(f["line"])) for f in _STACK_TRACE_FRAME.finditer(stack_trace or ""))
    frames = [("<string>" if file == _KEPT_STRING else file, line) for file, line in found]
    return next((SourceLocation(*frame) for frame in reversed(frames) if is_users_file(frame[0])), None)


def call_at(
    location: SourceLocation | None, function: Callable[..., Result], *args: Any, **kwargs: Any
) -> Result:
    """Call `function` from a frame at `location`, as `here` and every stack trace will show."""
    caller = _caller_at(location) if location else None
    return caller(function, *args, **kwargs) if caller else function(*args, **kwargs)


@cache
def _caller_at(location: SourceLocation) -> Callable[..., Any]:
    """Return a caller whose frame is that of a function called `forward`: torch.export drops the lines of all others."""
    namespace: dict[str, Any] = {}
    text = "def forward(function, *args, **kwargs): return function(*args, **kwargs)"
    file = _KEPT_STRING if location.file == "<string>" else location.file
    exec(compile("\n" * (location.line - 1) + text, file, "exec"), namespace)
    return namespace["forward"]


def quoted(location: SourceLocation | None) -> str:
    """Return the line itself as ` (`text`)`, for the middle of a message; empty if it is not known."""
    text = linecache.getline(location.file, location.line).strip() if location else ""
    return f" (`{text if len(text) <= 80 else text[:79] + '…'}`)" if text else ""


def trace_error(message: str, location: SourceLocation | None = None) -> TraceError:
    """Return the error `FILE:LINE: message; in layer PATH: TYPE`, at the running line if none is given.

    Unknown parts are left out.
    """
    location = location or here()
    if location is None:
        return TraceError(message)
    layer = f"; in layer {location.layer}" if location.layer else ""
    return TraceError(f"{location.file_and_line}: {message}{layer}", location, message)
