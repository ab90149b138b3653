"""The Python places that the traced step depends on: every place whose change could change the step.

There are two sources. Modules are precise: while the step is exported, each attribute that is read from one is
recorded. Everything else (globals, closures, configuration objects, lists, dictionaries) is found from the code that
ran. These are the names that the loss, the `forward` methods and the functions they call load, and the containers that
they refer to, member by member.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from threading import get_ident
from types import FunctionType
from typing import Any, Literal, cast

import numpy as np
import torch

from aicf_mlir.frontend.contents import Contents
from aicf_mlir.frontend.values import DEQUE, DICT, LIST, attributes, is_a, items, slot

Kind = Literal[
    "item",
    "items",
    "members",
    "cell",
    "class",
    "slot",
    "bytes",
    "equal",
    "file",
    "context",
    "environment",
    "setting",
    "code",
    "type",
    "object",
    "values",
    "number",
]
"""
item      one entry of a dictionary, or its absence
items     all entries of a dictionary, in order
members   all members of a list
cell      the content of a closure cell
class     an attribute of a class, found as Python finds it
slot      an attribute of an object without a dictionary
bytes     the memory of an array
equal     the members of a set or a deque, compared by value
file      a file that was read once, when the step was compiled
context   the value of a ContextVar
environment  os.environ
setting   a function's result about the process or the thread
code      code and defaults of a function
type      all attributes of a class and its bases
object    class and dictionary of an object
values    the elements of a tensor
number    a value that follows from numbers in the places around a loop body
"""

PARTED = ("environment", "code", "type", "object")
"""Kinds of places with several values by name; a message names the values that differ."""

NOT_COMPARED = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__abstractmethods__",
        "_abc_impl",
    }
)
"""Attributes of a class that no step computes with, and attributes that Python itself sets."""


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT: Any = _Absent()
"""A marker for a dictionary entry, or the content of a cell, that does not exist."""

STRUCTURE = ("_modules", "_parameters", "_buffers")
"""The names under which a module keeps its dictionaries of modules, parameters and buffers."""


class Replaced:
    """A function in C with another in its place while a step is traced, in the thread that traces alone.

    As it is no function of Python, a recorder notes what a call of it reads. Other threads, and whoever keeps it for longer,
    have the original: they call it, pickle it, and their guards see it.
    """

    __slots__ = ("_function", "_is_here", "original")

    def __init__(
        self, function: Callable[..., Any], original: Callable[..., Any], is_here: Callable[[], bool]
    ):
        """`is_here`: whether the caller is the thread that traces, as long as it does."""
        self._function, self.original, self._is_here = function, original, is_here

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the other one."""
        return (self._function if self._is_here() else self.original)(*args, **named)

    def __getattr__(self, name: str) -> Any:
        """Return what the original has."""
        return getattr(self.original, name)

    def __reduce__(self) -> Any:
        """Pickle the original, by its name."""
        return _named, (self.original.__module__, self.original.__qualname__)


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


ORIGINAL = "aicf_original"
"""The attribute in which a method that stands for another has that."""


def original(value: Any) -> Any:
    """Return a value, or what it stands for while a thread traces."""
    if type(value) is Replaced:
        return value.original
    return vars(value).get(ORIGINAL, value) if type(value) is FunctionType else value


@contextmanager
def while_tracing() -> Generator[Callable[[], bool]]:
    """Give a function that is true inside, in this thread."""
    thread, inside = get_ident(), True
    try:
        yield lambda: inside and get_ident() == thread
    finally:
        inside = False


@dataclass(frozen=True, eq=False)
class Read:
    """One place that the trace read."""

    path: str
    """The path as the user would write it: `model.fc.scale`, `weights["kl"]`."""
    kind: Kind
    owner: Any
    key: str = ""
    """The key of an item, class or slot."""
    mentioned: AbstractSet[str] = frozenset()
    """The names and strings in the code that ran: a key of `items` that is not among them is rarely read."""
    may_be_host_scalar: bool = True
    """True if a number in the place can be made a host scalar by its name."""
    is_code: bool = False
    """True if the place holds code rather than a value."""

    def value(self) -> Any:
        """Return the current value."""
        match self.kind:
            case "item":
                return original(DICT.get(self.owner, self.key, ABSENT))
            case "items":
                return tuple((key, original(value)) for key, value in items(self.owner))
            case "members":
                return tuple(map(original, LIST.__iter__(self.owner)))
            case "cell":
                try:
                    return original(self.owner.cell_contents)
                except ValueError:
                    return ABSENT
            case "class":
                bases: tuple[type, ...] = self.owner.__mro__
                return original(next((vars(c)[self.key] for c in bases if self.key in vars(c)), ABSENT))
            case "slot":
                try:
                    return original(slot(self.owner, self.key).__get__(self.owner))
                except AttributeError:
                    return ABSENT
            case "bytes":
                return _bytes_of(self.owner)
            case "equal":
                is_set = issubclass(type(self.owner), set)
                return set[Any]().union(self.owner) if is_set else tuple(DEQUE.__iter__(self.owner))
            case "file":
                return self.owner
            case "context":
                return _in_context(self.owner)
            case "environment":
                return tuple(self.owner.items())
            case "setting":
                return self.owner()
            case "code":
                return tuple((part, getattr(self.owner, part)) for part in PARTS_OF_A_FUNCTION)
            case "type":
                return tuple(_attributes(self.owner))
            case "values":
                return Contents(self.owner)
            case "number":
                try:
                    return self.owner.now()
                except Exception:  # noqa: BLE001 - of the user's numbers, that are no longer what they were
                    return ABSENT
            case "object":
                return ("__class__", type(self.owner)), ("__dict__", attributes(self.owner))

    @property
    def place(self) -> tuple[str, int, str]:
        """A key that is equal for two reads of one place."""
        return self.kind, id(self.owner), self.key


PARTS_OF_A_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__")


def _attributes(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__[:-1]:
        for name, held in vars(base).items():
            value = original(held)
            # while another thread traces, torch's classes have attributes of ours
            if name not in NOT_COMPARED and not _is_ours(value):
                yield f"{base.__name__}.{name}", value


def _is_ours(value: object) -> bool:
    return type(value) is FunctionType and (value.__module__ or "").startswith("aicf_mlir.frontend")


def _in_context(variable: ContextVar[Any]) -> Any:
    """Return its value; the default counts, and is found only without another one."""
    try:
        return variable.get()
    except LookupError:
        return ABSENT


def _bytes_of(owner: Any) -> Any:
    """Return the memory of an array, in the order of its indices; of an array of objects, the objects."""
    if not is_a(owner, np.ndarray):
        return bytes(memoryview(owner))
    array = np.asarray(cast(Any, owner))
    return tuple(array.ravel().tolist()) if array.dtype.hasobject else array.tobytes()


def named_modules(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """A module and all inside it, by path."""
    named: Any = vars(torch.nn.Module)["named_modules"]
    modules: list[tuple[str, torch.nn.Module]] = list(named(module))
    return modules
