"""The objects that the code of a function leads to before it is traced: modules, optimizers and schedulers, and places
of torch's own code.

Only dictionaries and types are read: no method of a user's object runs.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

import torch

from aicf_mlir.frontend.library import functions_in, is_followed, lookups, nested
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.source import is_users_file
from aicf_mlir.frontend.values import DICT, LIST, TUPLE, attributes, is_a

DRIVERS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
"""The types of objects that drive a training loop."""

LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")

MOST = 100_000
"""The most objects that are examined: models and optimizers are near."""


class Behind:
    """The objects that a function reaches by the names in its code, its closure and its object."""

    def __init__(self, function: Callable[..., Any], path: str):
        self.modules: dict[str, torch.nn.Module] = {}
        """The modules by path, in the order in which they were met."""
        self.tensors: dict[str, torch.Tensor] = {}
        """The tensors outside of modules."""
        self.drivers: dict[str, Any] = {}
        """The optimizers, schedulers and gradient scalers."""
        self._mentioned: set[str] = set()
        self._codes: dict[int, tuple[types.CodeType, set[str], list[str]]] = {}
        """The words of each code that was met."""
        known: set[str] | None = None
        while known != self._mentioned:  # newly met code mentions more names
            known = set(self._mentioned)
            self._walk(function, path)

    def _walk(self, function: Any, path: str) -> None:
        self.modules, self.drivers, self.tensors = {}, {}, {}
        seen: dict[int, Any] = {id(sys.modules): sys.modules}  # which leads to all code that there is
        pending: list[tuple[Any, str]] = [(function, path)]
        while pending and len(seen) < MOST:
            value, where = pending.pop()
            if id(value) not in seen:
                seen[id(value)] = value
                pending += reversed([*self._inside(value, where)])

    def _inside(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        kind = cast("type[Any]", type(value))
        if issubclass(kind, torch.nn.Module):
            if not any(value is known for known in self.modules.values()):
                self.modules.setdefault(path, value)
            yield from _drivers_in(value, path)
        elif issubclass(kind, DRIVERS):
            if not any(value is known for known in self.drivers.values()):
                self.drivers[path] = value
        elif issubclass(kind, torch.Tensor):
            self.tensors.setdefault(path, value)
        elif kind is types.FunctionType:
            yield from self._function(value)
        elif kind is types.MethodType:
            yield value.__func__, path
            yield value.__self__, path.rpartition(".")[0] or "self"
        elif kind is functools.partial:
            yield value.func, path
            yield from ((each, f"{path}.args[{i}]") for i, each in enumerate(value.args))
            yield from ((each, f"{path}.keywords[{key!r}]") for key, each in value.keywords.items())
        elif issubclass(kind, (list, tuple)):
            members = LIST.__iter__ if issubclass(kind, list) else TUPLE.__iter__
            yield from ((each, f"{path}[{i}]") for i, each in enumerate(members(value)))
        elif issubclass(kind, dict):
            yield from ((each, f"{path}[{key!r}]") for key, each in _plain(DICT.items(value)))
        elif issubclass(kind, types.ModuleType):
            if is_users_file(getattr(value, "__file__", None) or "<builtin>"):
                yield from self._named(cast(Any, vars(value)), path)
        elif issubclass(kind, (staticmethod, classmethod)):
            yield value.__func__, path
        elif kind is property:
            yield value.fget, path
        elif not issubclass(kind, (str, int, float, type)):
            yield from self._of(value, path)

    def _of(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Yield the attributes and methods of an object that are mentioned."""
        if (own := attributes(value)) is not None:
            yield from self._named(cast(Any, own), path)
            if "__wrapped__" in own:
                yield own["__wrapped__"], path
        for base in cast("type[Any]", type(value)).__mro__[:-1]:
            if is_users_file(getattr(sys.modules.get(base.__module__), "__file__", None) or "<builtin>"):
                yield from ((vars(base)[n], path) for n in {"__call__", *self._mentioned} & vars(base).keys())

    def _named(self, own: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
        yield from ((own[name], f"{path}.{name}") for name in sorted(self._mentioned & own.keys()))

    def _function(self, function: types.FunctionType) -> Iterator[tuple[Any, str]]:
        if not is_users_file(function.__code__.co_filename):
            yield from ((inner, inner.__name__) for inner in functions_in(function))
            return
        code = function.__code__
        if id(code) not in self._codes:
            self._codes[id(code)] = (code, *_words(code))
        _, mentioned, loaded = self._codes[id(code)]
        self._mentioned |= mentioned
        yield from ((function.__globals__[n], n) for n in loaded if n in function.__globals__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it may have no content yet
                yield cell.cell_contents, name
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        yield from ((each, f"a default of {function.__name__}") for each in defaults)
        wrapped = vars(function).get("__wrapped__")
        if wrapped is not None:
            yield wrapped, function.__name__


def _words(code: types.CodeType) -> tuple[set[str], list[str]]:
    """The names and texts of a code and those in it, and the names that it loads.

    Names that no source can have are of a tool that has rewritten the code, as pytest does with `assert`.
    """
    mentioned: set[str] = set()
    loaded: dict[str, None] = {}
    for each in nested(code):
        mentioned |= {*each.co_names, *(const for const in each.co_consts if type(const) is str)}
        loaded |= {line.argval: None for line in dis.get_instructions(each) if line.opname in LOADS}
    return mentioned, [name for name in loaded if name.isidentifier()]


def _drivers_in(module: torch.nn.Module, path: str) -> Iterator[tuple[Any, str]]:
    """Yield the drivers that a module and those in it hold, alone or in a list or a dictionary.

    Its methods are not walked: those of a large library lead to all of it.
    """
    seen: dict[int, Any] = {}
    pending: list[tuple[torch.nn.Module | None, str]] = [(module, path)]
    while pending:
        part, name = pending.pop()
        if part is None or id(part) in seen:
            continue
        seen[id(part)] = part
        own = attributes(part) or {}
        for key, each in _plain(DICT.items(own)):
            kind = cast("type[Any]", type(each))
            held = [*each.values()] if kind is dict else [*each] if kind in (list, tuple) else [each]
            for i, driver in enumerate(held):
                if issubclass(type(driver), DRIVERS):
                    yield driver, f"{name}.{key}" + (f"[{i}]" if len(held) > 1 else "")
        inner = own.get("_modules")
        if issubclass(type(inner), dict):  # that of a TorchScript module is none
            pending += ((each, f"{name}.{key}") for key, each in _plain(DICT.items(inner)))


def _plain(items: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in items:
        yield (key if type(key) in (str, int) else "…"), value


def modules_behind(function: Callable[..., Any]) -> dict[str, torch.nn.Module]:
    """The modules that a loss function finds in its closure, its globals or its object, by their names there."""
    return Behind(function, "loss_fn").modules


def called_by(functions: Mapping[str, types.FunctionType]) -> list[Read]:
    """Return the places of torch's code that functions of torch use, by the functions' names."""
    reads: dict[tuple[str, int, str], Read] = {}
    pending = [*functions.values()]
    seen = set[int]()

    def note(read: Read) -> None:
        reads.setdefault(read.place, read)

    first = {id(function) for function in pending}
    while pending:
        function = pending.pop(0)
        if id(function) in seen:
            continue
        seen.add(id(function))
        path = f"{function.__module__}.{function.__qualname__}"
        note(Read(path, "code", function, may_be_host_scalar=False, is_code=True))
        if id(function) not in first and not is_followed(function):
            continue
        for lookup in lookups(function):
            note(Read(lookup.path, "item", lookup.owner, lookup.name, may_be_host_scalar=False, is_code=True))
            value = lookup.value()
            if is_a(value, types.FunctionType) and not is_users_file(value.__code__.co_filename):
                pending.append(value)
        pending += functions_in(function)
    return [*reads.values()]
