"""`FILE.py:FUNCTION`: how the tools get a train step from the user's code.

FUNCTION takes no arguments and returns a dictionary:

    "model"      a torch.nn.Module
    "batch"      an example batch: a dictionary, dataclass, tuple or list of tensors
    "optimizer"  a torch.optim SGD, Adam or AdamW (optional)
    "loss_fn"    a function of (model, batch), or a torch loss module (optional: MSE of model(x) against t)
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import LossFunction, source
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.structure import Batch
from aicf_mlir.ir.locations import SourceLocation

CONTRACT = 'it must return a dictionary {"model": ..., "batch": ..., "optimizer": ..., "loss_fn": ...}'

REQUIRED = {
    "model": (torch.nn.Module, "a Module"),
    "batch": ((Mapping, tuple, list), "a Mapping, a tuple or a list"),
}


@dataclass(frozen=True)
class UserStep:
    """The step that FUNCTION returned."""

    model: torch.nn.Module
    batch: Batch
    optimizer: torch.optim.Optimizer | None
    loss_fn: LossFunction | None
    location: SourceLocation
    """The line of FUNCTION's definition."""


def load_user_step(text: str) -> UserStep:
    """
    Run the user's FILE and call FUNCTION.

    Raises TraceError if either is missing, fails, or returns something else; with the user's file and line.
    """
    file, colon, name = text.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise TraceError(f"expected FILE.py:FUNCTION, got {text!r}")
    if not Path(file).is_file():
        raise TraceError(f"{file}: there is no such file")
    function = _function(_load(Path(file)), file, name)
    location = SourceLocation(file, function.__code__.co_firstlineno)
    if _required_arguments(function):
        raise trace_error(f"{name}() must take no arguments", location)
    return _user_step(_guarded(function, location), name, location)


def _load(path: Path) -> ModuleType:
    """The user's file as a module; like a script it sees its own folder."""
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        raise TraceError(f"{path}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules.setdefault(path.stem, module)
    _guarded(lambda: loader.exec_module(module), SourceLocation(str(path), 1))
    return module


def _guarded(call: Callable[[], Any], location: SourceLocation) -> Any:
    """Run the user's code; an exception becomes one error at the user's line."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        if isinstance(error, SyntaxError):
            location = SourceLocation(error.filename or location.file, error.lineno or 1)
        else:
            location = source.of_traceback(error.__traceback__) or location
        raise trace_error(f"{type(error).__name__}: {error}", location) from error


def _function(module: ModuleType, file: str, name: str) -> Any:
    if inspect.isfunction(function := vars(module).get(name)):
        return function
    own = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
    raise TraceError(f"{file}: there is no function {name!r}; there are {', '.join(own) or 'none'}")


def _required_arguments(function: Any) -> list[str]:
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]


def _user_step(result: object, name: str, location: SourceLocation) -> UserStep:
    if not isinstance(result, Mapping):
        raise trace_error(f"{name}() returned {type(result).__name__}; {CONTRACT}", location)
    entries = cast(Mapping[str, Any], result)
    known = ("model", "batch", "optimizer", "loss_fn")
    if unknown := [str(key) for key in entries if key not in known]:
        raise trace_error(f"{name}() returned the unknown entries {', '.join(unknown)}; {CONTRACT}", location)
    for key, (kind, wanted) in REQUIRED.items():
        if not isinstance(entries.get(key), kind):
            got = type(entries[key]).__name__ if key in entries else "nothing"
            raise trace_error(f"{name}() must return {wanted} as {key!r}, got {got}", location)
    optimizer = entries.get("optimizer")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise trace_error(
            f"{name}() must return a torch optimizer as 'optimizer', got {type(optimizer).__name__}", location
        )
    return UserStep(entries["model"], entries["batch"], optimizer, entries.get("loss_fn"), location)
