"""Looking into the user's objects: whatever they raise when they are looked at is an error of AICF that says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from aicf_mlir.errors import AicfError
from aicf_mlir.frontend.source import of_traceback, trace_error

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def inspection(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """`function`, which looks into objects of the user's, with a TraceError for what they raise."""

    @wraps(function)
    def looking(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except AicfError:
            raise
        except Exception as error:
            raise trace_error(
                f"an object that the step reads cannot be looked into: {described(error)}; keep it out of what the step reads",
                of_traceback(error.__traceback__),
            ) from error

    return looking


def described(error: BaseException) -> str:
    """An exception in one line, also where its own text raises."""
    try:
        text = next(iter(str(error).splitlines()), "")
    except Exception:  # noqa: BLE001 - it is of the user's own class
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
