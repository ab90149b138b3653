"""Lookups in modules: `torch.tanh`, `F.relu`, `os.environ`, and the lookups that torch's own functions make in turn.

The user's code names few of the functions that a step calls: `nn.ReLU` calls `F.relu`, which calls `torch.relu`. Each
of them can be replaced in its module after a step was compiled, or get other code. So torch's functions are followed
like the user's, along the names in their bytecode and no further.
"""

from __future__ import annotations

import builtins
import dis
import sys
import types
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from aicf_mlir.frontend.reads import ABSENT
from aicf_mlir.frontend.source import is_users_file

MACHINERY = (
    "torch._",
    "torch.autograd",
    "torch.compiler",
    "torch.cuda",
    "torch.distributed",
    "torch.export",
    "torch.fx",
    "torch.jit",
    "torch.onnx",
    "torch.overrides",
    "torch.utils",
)
"""Torch modules with code around a computation: names are looked up in them, but their functions are not followed."""


class Lookup(NamedTuple):
    """One place that code looks up."""

    owner: dict[str, Any]
    """The dictionary of a module."""
    name: str
    path: str
    """The path as the code writes it."""
    holder: types.ModuleType | None
    """The module; None for a global name."""

    def value(self) -> Any:
        """Return the current value; an attribute that a module computes on access is left out."""
        return self.owner.get(self.name)


def lookups(function: types.FunctionType) -> Iterator[Lookup]:
    """Yield every global name that a function loads, and the attributes of a module by the names that follow, as in
    `torch.relu`.
    """
    for code in nested(function.__code__):
        yield from _lookups_of(code, function)


def _lookups_of(code: types.CodeType, function: types.FunctionType) -> Iterator[Lookup]:
    own, cells = function.__globals__, dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
    imported: dict[str, Any] = {}
    current: Any = None
    path = ""
    for opname, name in _instructions(code):
        match opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                owner = own if name in own else builtins.__dict__
                current, path = owner.get(name), name
                yield Lookup(owner, name, name, None)
            case "LOAD_DEREF" | "LOAD_CLASSDEREF" if name in cells:
                current, path = _content(cells[name]), name
            case "LOAD_FAST" | "LOAD_DEREF" if name in imported:
                current, path = imported[name], name
            case "IMPORT_NAME":
                current, path = sys.modules.get(name), name
            case "LOAD_ATTR" | "LOAD_METHOD" | "IMPORT_FROM" if isinstance(current, types.ModuleType):
                found = Lookup(current.__dict__, name, f"{path}.{name}", current)
                current, path = found.value(), found.path
                yield found
            case "STORE_FAST" | "STORE_DEREF" if current is not None:
                imported[name], current = current, None
            case "PUSH_NULL" | "PRECALL" | "CACHE" | "NOP" | "SWAP" | "POP_TOP" | "COPY":
                pass  # between an import and the name it is given
            case _:
                current = None


@lru_cache(maxsize=4096)
def _instructions(code: types.CodeType) -> tuple[tuple[str, Any], ...]:
    """Return the name and the argument of each instruction. torch's functions are read several times for each step."""
    return tuple((each.opname, each.argval) for each in dis.get_instructions(code))


def functions_in(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Yield the functions in the closure of a function: the functions that it wraps."""
    for cell in function.__closure__ or ():
        if isinstance(content := _content(cell), types.FunctionType):
            yield content


def is_followed(function: types.FunctionType) -> bool:
    """True if it is a function of torch that computes, not machinery around it."""
    module: str = getattr(function, "__module__", None) or ""
    return module.partition(".")[0] == "torch" and not module.startswith(MACHINERY)


def is_librarys(function: types.FunctionType) -> bool:
    """True if it is torch's or Python's own."""
    return not is_users_file(function.__code__.co_filename)


SETTINGS = ("get_", "_get_", "are_", "_are_", "is_", "_is_")
"""Prefixes of the names of functions that return a torch setting."""

OF_THE_STEP = (
    "grad",
    "autocast",
    "inference",
    "tracing",
    "compiling",
    "scripting",
    "exporting",
    "function_state",
)
"""Parts of names of settings that a compiled step fixes itself, independent of the caller's."""


def is_setting(value: Any) -> bool:
    """True if it is a C function with which torch returns a setting of the process or of the thread."""
    if (
        not isinstance(value, types.BuiltinFunctionType)
        or (value.__module__ or "torch").partition(".")[0] != "torch"
    ):
        return False
    name = value.__name__
    if not name.startswith(SETTINGS) or any(word in name for word in OF_THE_STEP):
        return False
    try:
        return isinstance(value(), (bool, int, float, str, torch.dtype, torch.device, types.NoneType))
    except Exception:  # noqa: BLE001 - it needs arguments, so it is none
        return False


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and the code objects of functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def class_attribute(kind: type, name: str) -> Any:
    """Return the class's own attribute `name`, unbound; ABSENT if it has none, or only the one that every object has."""
    for base in kind.__mro__:
        if base not in (object, torch.nn.Module) and name in vars(base):
            return vars(base)[name]
    return ABSENT
