"""A walk from the code of a step to every Python value behind it, each noted as a `Read`."""

from __future__ import annotations

import enum
import functools
import multiprocessing.queues
import os
import queue
import threading
import types
from array import array
from collections import UserDict, UserList, deque
from contextvars import ContextVar
from typing import Any, cast

import numpy as np
import torch

from aicf_mlir.frontend.drawn import REPEATED, SOURCES
from aicf_mlir.frontend.functions import (
    WRAPPERS,
    Code,
    FunctionType,
    caches_of,
    class_attribute,
    functions_of,
    is_library,
    is_users_class,
    loads,
    nested,
)
from aicf_mlir.frontend.library import (
    Lookup,
    functions_in,
    getter_at,
    is_followed,
    is_librarys,
    is_setting,
    lookups,
)
from aicf_mlir.frontend.reads import ABSENT, STRUCTURE, Kind, Read
from aicf_mlir.frontend.source import is_users_file, trace_error

PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.Size,
    np.generic,
)
"""Immutable values: the place that holds them is all there is to watch."""

DRIVERS = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
"""What moves a training loop: its numbers change from step to step, and no step reads them while it is traced."""

HOLDERS = (UserDict, UserList)
"""Python's containers that are objects with a plain one inside."""

QUEUES = (queue.SimpleQueue, multiprocessing.queues.Queue, multiprocessing.queues.SimpleQueue)
"""Queues that do not say what they hold."""

ARRAYS = (np.ndarray, array, bytearray)
"""Containers of numbers, whose memory is compared."""

MOST_READS = 200_000
"""Places; a container of the user's data belongs into the batch instead."""

ENVIRONMENT: type = type(os.environ)
"""What os.environ is."""

CALLS = ("_wrapped_call_impl", "_call_impl")
"""The methods of torch.nn.Module by which a module is called."""

TRACERS = ("torch.fx", "torch.export", "torch._")
"""Where torch.export has modules of its own, which are read while it traces."""


class Walk:
    """Follows values from the functions of a step; each place and each container once."""

    def __init__(self, mentioned: set[str]) -> None:
        """`mentioned`: names that are known already to stand in the code."""
        self.reads: list[Read] = []
        self.code: list[Read] = []
        """Places where code is found: names in modules, functions, classes."""
        self.mentioned = set(mentioned)
        """Names and strings in the code that was reached."""
        self.modules: dict[str, torch.nn.Module] = {}
        """The modules that were met, by path."""
        self.drivers: dict[str, Any] = {}
        """The optimizers, schedulers and gradient scalers that were met, by path."""
        self.functions: list[FunctionType] = []
        """The user's functions."""
        self.caches: list[Any] = []
        """The user's functions that keep what they gave."""
        self.refuses = True
        """Whether an iterator or a random generator is an error: not where nothing says yet that it is read."""
        self._places: set[tuple[str, int, str]] = set()
        self._code_places: set[tuple[str, int, str]] = set()
        self._visited: dict[int, Any] = {}
        self._visited_functions: dict[int, FunctionType] = {}
        self._mentioned_by: set[Code] = set()

    def add(self, path: str, kind: Kind, owner: Any, key: str = "", *, may_be_meta: bool = True) -> None:
        """Record a place, once."""
        read = Read(path, kind, owner, key, self.mentioned, may_be_meta)
        if read.place in self._places:
            return
        if len(self.reads) == MOST_READS:
            raise trace_error(
                f"the step reads {path!r}, and with it more than {MOST_READS:,} Python values that would have to be"
                " compared before each step; pass them as tensors in the batch"
            )
        self._places.add(read.place)
        self.reads.append(read)

    @property
    def all(self) -> list[Read]:
        """The places of values, and those of code."""
        return [*self.reads, *self.code]

    def hide(self, path: str, kind: Kind, owner: Any, key: str = "") -> None:
        """Record a place of code, once."""
        read = Read(path, kind, owner, key, self.mentioned, may_be_meta=False, is_code=True)
        if read.place not in self._code_places:
            self._code_places.add(read.place)
            self.code.append(read)

    def instance(self, value: Any, path: str) -> None:
        """An object: its class and dictionary may be exchanged, and its class changed."""
        self.hide(path, "object", value)
        self.hide(type(value).__name__, "type", type(value))

    def attribute(self, module: torch.nn.Module, name: str, path: str) -> None:
        """An attribute that was seen to be read from a module."""
        self.instance(module, path.rpartition(".")[0])
        own = vars(module)
        if name in STRUCTURE or (name in own and name.endswith("_hooks")):
            self.add(path, "items", own[name])
        elif name in own:
            self.add(path, "item", own, name)
            self.visit(own[name], path)
        elif name == "__dict__":
            for key in [key for key in own if key not in STRUCTURE]:
                self.attribute(module, key, f"{path.removesuffix('.__dict__')}.{key}")
        elif (
            holder := next((own[part] for part in STRUCTURE if name in own.get(part, ())), None)
        ) is not None:
            self.add(path, "item", holder, name)
        elif any(name in vars(c) for c in type(module).__mro__ if c not in (torch.nn.Module, object)):
            self.add(path, "item", own, name)
            self.add(f"{type(module).__name__}.{name}", "class", type(module), name)
            self.visit(class_attribute(type(module), name), path)

    def mention(self, value: Any) -> None:
        """Take in the names that a function and what it calls mention."""
        pending = [value]
        while pending:
            for found in functions_of(pending.pop()):
                code = found.__code__
                if code in self._mentioned_by or not is_users_file(code.co_filename):
                    continue
                self._mentioned_by.add(code)
                for part in nested(code):
                    self.mentioned |= set(part.co_names)
                    self.mentioned |= {c for c in part.co_consts if isinstance(c, str)}
                pending += [v for _, _, _, v in loads(found)]

    def visit(self, value: Any, path: str) -> None:
        """What a value is made of; the place that holds it is recorded already."""
        if isinstance(value, torch.Tensor) or id(value) in self._visited:
            return
        if isinstance(value, PLAIN):
            plain: Any = cast(Any, value)
            if is_users_class(_class_of(plain)):  # an enumeration, or a number with methods
                self._visited[id(plain)] = plain
                self._object(plain, path)
            return
        if isinstance(value, torch.nn.Module):
            self.modules.setdefault(path, value)
            return
        if isinstance(value, DRIVERS):
            if not any(value is known for known in self.drivers.values()):
                self.drivers[path] = value
            return
        self._visited[id(value)] = value  # kept: an id is only taken while its object lives
        if functions := list(functions_of(value)):
            self.mention(value)
            for function in functions:
                self._function(function, path)
            if is_users_file(functions[0].__code__.co_filename):
                self.caches += caches_of(value)
            if isinstance(value, functools.partial):
                self.visit(value.args, f"{path}.args")
                self.visit(value.keywords, f"{path}.keywords")
            if isinstance(value, types.MethodType):
                self.visit(value.__self__, path.rpartition(".")[0] or "self")
            if isinstance(value, (FunctionType, types.MethodType, functools.partial)):
                return
            held: Any = value
            if isinstance(held, tuple(WRAPPERS)):
                return
        if isinstance(value, (list, tuple)):
            self._sequence(cast(Any, value), path)
        elif isinstance(value, dict):
            self._dictionary(cast(Any, value), path)
        elif isinstance(value, (set, frozenset, deque)):
            self.add(path, "equal", cast(Any, value))
        elif isinstance(value, ARRAYS):
            self.add(path, "bytes", cast(Any, value))
        elif isinstance(value, ENVIRONMENT):
            self.add(path, "environment", value)
        elif isinstance(value, ContextVar):
            self.add(path, "context", value)
            self.visit(Read(path, "context", value).value(), path)
        elif isinstance(value, threading.local):
            self._local(value, path)
        elif isinstance(value, types.ModuleType):
            self._module(value, path)
        elif isinstance(value, type):
            self._class(value, path)
        elif hasattr(value.__class__, "__next__") or self._is_taken_from(value):
            if not self.refuses:
                return
            what, kind = "an iterator" if hasattr(value.__class__, "__next__") else "a queue", value.__class__
            raise trace_error(
                f"the step reads {path!r}, {what} ({kind.__name__}); a compiled step would repeat what it"
                " gave first; read from it outside the loss and pass the value in the batch"
            )
        elif isinstance(value, SOURCES):
            if not self.refuses:
                return
            kind = value.__class__
            raise trace_error(f"the step reads {path!r}, a random generator ({kind.__name__}); {REPEATED}")
        elif isinstance(value, queue.Queue):
            self.visit(cast(Any, value).queue, f"{path}.queue")
        elif isinstance(value, HOLDERS):
            self.add(f"{path}.data", "item", vars(value), "data")
            self.visit(cast(Any, value).data, path)
        if is_users_class(_class_of(value)) and not isinstance(value, (type, types.ModuleType)):
            self._object(value, path)

    def _is_taken_from(self, value: Any) -> bool:
        """Whether it is a queue of which nothing can be seen, and the code may take something out of it."""
        return isinstance(value, QUEUES) and bool({"get", "get_nowait"} & self.mentioned)

    def _local(self, value: threading.local, path: str) -> None:
        """What this thread has there."""
        self.add(f"{path}.__dict__", "slot", value, "__dict__")
        own = vars(value)
        for name in sorted(self.mentioned):
            self.add(f"{path}.{name}", "item", own, name)
            self.visit(own.get(name), f"{path}.{name}")

    def _looked_up(self, lookup: Lookup, path: str, depth: int) -> None:
        """A place in which code looks; `path`: as the user's code has it."""
        value = lookup.value()
        if lookup.holder is not None or not depth or is_library(value):  # in torch's code any name
            self.hide(lookup.path, "item", lookup.owner, lookup.name)
        if (getter := value if is_setting(value) else getter_at(lookup)) is not None:
            self.add(f"{path}()" if getter is value else path, "setting", getter, may_be_meta=False)
        elif isinstance(value, FunctionType) and is_librarys(value):
            self._library(value, path, depth)
        elif isinstance(value, (ENVIRONMENT, ContextVar)) or (
            depth
            and lookup.holder is not None
            and _is_of_values(value)
            and not is_users_module(lookup.holder)
        ):
            self.visit(value, path)

    def _library(self, function: FunctionType, path: str, depth: int) -> None:
        """A function of torch, with all that computes below it; of one that the user's code calls, what it looks up."""
        if id(function) in self._visited_functions:
            return
        self._visited_functions[id(function)] = function
        self.hide(f"{function.__module__}.{function.__qualname__}", "code", function)
        if not depth and not is_followed(function):
            return
        for lookup in lookups(function):
            self._looked_up(lookup, path, 0)
        for inner in functions_in(function):
            self._library(inner, path, 0)

    def _function(self, function: FunctionType, path: str) -> None:
        if is_librarys(function):
            self._library(function, path, 1)
            return
        self.functions.append(function)
        self.hide(function.__qualname__.rpartition("<locals>.")[2], "code", function)
        if function.__kwdefaults__:
            self.add(f"{function.__name__}.__kwdefaults__", "items", function.__kwdefaults__)
        for lookup in lookups(function):
            self._looked_up(lookup, lookup.path, 1)
        for kind, owner, name, value in loads(function):
            if not is_library(value):
                self.add(name, kind, owner, name if kind == "item" else "")
            self.visit(value, name)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.visit(value, f"a default of {function.__name__}")
        if names := self.mentioned & vars(function).keys():
            for name in sorted(names):
                self.add(f"{function.__name__}.{name}", "item", vars(function), name)
                self.visit(vars(function)[name], f"{function.__name__}.{name}")

    def _sequence(self, value: list[Any] | tuple[Any, ...], path: str) -> None:
        if isinstance(value, list):
            self.add(path, "members", value)
        for i, member in enumerate(value):
            self.visit(member, f"{path}[{i}]")

    def _dictionary(self, value: dict[Any, Any], path: str) -> None:
        self.add(path, "items", value)
        for key, member in dict.items(value):
            self.visit(member, f"{path}[{key!r}]")

    def _module(self, value: types.ModuleType, path: str) -> None:
        """The mentioned names of a module of the user's; those of libraries are their authors' constants."""
        if not is_users_module(value):
            return
        for name in sorted(self.mentioned & vars(value).keys()):
            self.add(f"{path}.{name}", "item", vars(value), name)
            self.visit(vars(value)[name], f"{path}.{name}")

    def _class(self, value: type, path: str) -> None:
        if not is_users_class(value):
            return
        self.hide(path, "type", value)
        for name in sorted(self.mentioned):
            if (found := class_attribute(value, name)) is not ABSENT:
                self.add(f"{path}.{name}", "class", value, name)
                self.visit(found, f"{path}.{name}")

    def _object(self, value: Any, path: str) -> None:
        """The mentioned attributes of an object of the user's; all of them where its class looks them up in its own way."""
        kind: type = value.__class__
        own: dict[str, Any] = getattr(value, "__dict__", {})
        self.instance(value, path)
        dynamic = any(hasattr(kind, name) for name in ("__getattr__", "__getitem__", "__iter__"))
        everything = dynamic or {"__dict__", "vars", "asdict", "fields", "dir"} & self.mentioned
        for name in sorted(own if everything else self.mentioned & own.keys()):
            self.add(f"{path}.{name}", "item", own, name)
            self.visit(own[name], f"{path}.{name}")
        for name in sorted(self.mentioned - own.keys()):
            found = class_attribute(kind, name)
            if isinstance(found, types.MemberDescriptorType):
                self.add(f"{path}.{name}", "slot", value, name)
                self.visit(getattr(value, name, None), f"{path}.{name}")
            elif found is not ABSENT:
                self.add(f"{kind.__name__}.{name}", "class", kind, name)
                self.visit(found, f"{path}.{name}")
            if found is not ABSENT and hasattr(value, "__dict__"):
                self.add(f"{path}.{name}", "item", own, name)


def is_users_module(value: types.ModuleType) -> bool:
    """Whether a module is the user's, or of a library that is neither torch nor Python's own."""
    return is_users_file(getattr(value, "__file__", None) or "<builtin>")


def _is_of_values(value: object) -> bool:
    """Whether it is a container of plain values, as sys.argv is."""
    if isinstance(value, dict):
        return all(isinstance(each, PLAIN) for each in cast(dict[Any, Any], value).values())
    return isinstance(value, (list, set)) and all(isinstance(e, PLAIN) for e in cast(list[Any], value))


def _class_of(value: Any) -> type:
    return value.__class__
