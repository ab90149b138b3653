"""Functions of the user's: what wraps them, what their code loads, and whose classes are whose."""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from aicf_mlir.frontend.reads import ABSENT, Kind
from aicf_mlir.frontend.source import is_users_file

FunctionType = types.FunctionType
Code = types.CodeType

CACHED: type[Any] = functools._lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]
"""A function that keeps what it gave, as `functools.lru_cache` and `functools.cache` make it."""

WRAPPERS: dict[type, str] = {
    types.MethodType: "__func__",
    staticmethod: "__func__",
    classmethod: "__func__",
    functools.partial: "func",
    functools.cached_property: "func",
    property: "fget",
    CACHED: "__wrapped__",
}
"""Where what wraps a function keeps it."""


def functions_of(value: Any) -> Iterator[FunctionType]:
    """The Python functions that calling `value`, or reading it as an attribute, runs."""
    held: Any = value
    if isinstance(value, FunctionType):
        yield value
        if (wrapped := getattr(value, "__wrapped__", None)) is not None and wrapped is not value:
            yield from functions_of(wrapped)
    elif (
        attribute := next((name for kind, name in WRAPPERS.items() if isinstance(held, kind)), None)
    ) is not None:
        yield from functions_of(getattr(held, attribute))
    elif not isinstance(held, (type, torch.nn.Module)) and is_users_class(held.__class__):
        call = class_attribute(held.__class__, "__call__")
        if isinstance(call, FunctionType):
            yield call


def caches_of(value: Any) -> Iterator[Any]:
    """What keeps the results of a function, on the way to it."""
    held: Any = value
    while (
        attribute := next((name for kind, name in WRAPPERS.items() if isinstance(held, kind)), None)
    ) is not None:
        if isinstance(held, CACHED):
            yield held
        held = getattr(held, attribute)


def loads(function: FunctionType) -> Iterator[tuple[Kind, Any, str, Any]]:
    """The globals that a function and the functions inside it load, and its closure."""
    names = {
        instruction.argval: None
        for code in nested(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    for name in names:
        if name in function.__globals__:
            yield "item", function.__globals__, name, function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield "cell", cell, name, cell.cell_contents
        except ValueError:
            yield "cell", cell, name, None


def nested(code: Code) -> Iterator[Code]:
    """A code object and those of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, Code):
            yield from nested(constant)


def class_attribute(kind: type, name: str) -> Any:
    """What the class itself has under `name`, unbound; ABSENT where it has nothing, or only what every object has."""
    for base in kind.__mro__:
        if base not in (object, torch.nn.Module) and name in vars(base):
            return vars(base)[name]
    return ABSENT


def is_library(value: Any) -> bool:
    """Whether a global is a module, or a function or class that is not the user's: nobody binds those anew."""
    if isinstance(value, FunctionType):
        return not is_users_file(value.__code__.co_filename)
    if isinstance(value, type):
        return not is_users_class(value)
    return isinstance(value, (types.ModuleType, types.BuiltinFunctionType))


def is_users_class(kind: type) -> bool:
    """Whether a class was written by the user, or by a library that is neither torch nor Python's own."""
    module = sys.modules.get(kind.__module__)
    if kind.__module__ in ("types", "argparse"):  # SimpleNamespace and Namespace hold the user's values
        return True
    if kind.__module__ == "__main__" or module is None:
        return True
    return is_users_file(getattr(module, "__file__", None) or "<builtin>")
