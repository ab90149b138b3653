"""The Python places that a trace has visited, each with its first content and its content when the step is over.

A recorder in C (`csrc/bindings/python_*.cpp`) sees each instruction of the user's code and of torch's. It looks places
up by dictionaries and types, so no method of a user's object runs; none runs here either. Objects that only the trace
has made are left out.
"""

from __future__ import annotations

import array
import builtins
import dis
import functools
import gc
import multiprocessing.queues
import queue
import random
import sys
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal, cast

import numpy as np
import torch

from aicf_mlir import _C
from aicf_mlir.frontend.imports import is_imported, not_recorded
from aicf_mlir.frontend.reads import ABSENT, STRUCTURE, Replaced
from aicf_mlir.frontend.source import OURS, is_users_file
from aicf_mlir.frontend.special import TRACED
from aicf_mlir.frontend.values import PLAIN, is_a, same
from aicf_mlir.ir.locations import SourceLocation

_TORCH = Path(torch.__file__).parent
TRACER = (
    *(
        "_C",
        "_compile",
        "_decomp",
        "_dispatch",
        "_dynamo",
        "_export",
        "_functorch",
        "_guards",
        "_higher_order_ops",
        "_library",
    ),
    *(
        "_logging",
        "_ops",
        "_prims",
        "_refs",
        "_subclasses",
        "autograd",
        "compiler",
        "export",
        "fx",
        "overrides",
        "utils",
    ),
)
"""Parts of torch that trace, rather than compute."""
OWN = (
    OURS,
    "<frozen importlib",
    weakref.__file__,  # its callbacks run whenever any object is freed
    *(str(_TORCH / name) for name in TRACER),
    *(
        str(_TORCH.parent / name) for name in ("sympy", "mpmath")
    ),  # torch's tracer uses these for arithmetic on numbers
)
"""File name prefixes of code that is not recorded: AICF's and that of torch's tracer."""

LIBRARY = ("<frozen ", "<string>", sysconfig.get_path("stdlib"))
"""File name prefixes of code that works for its caller; a data class is made by code of "<string>"."""

DRAWN = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
QUEUES = (queue.SimpleQueue, multiprocessing.queues.Queue, multiprocessing.queues.SimpleQueue)
OPAQUE = (*DRAWN, *QUEUES)
"""Types whose objects give a different value each time; so do iterators in C."""

CACHED: Any = functools._lru_cache_wrapper  # pyright: ignore[reportPrivateUsage]

ARRAYS = (bytearray, array.array, np.ndarray)
"""Containers of numbers, whose memory is their content."""

PlaceKind = Literal[
    "item", "class", "slot", "cell", "content", "context", "code", "object", "setting", "opaque"
]


@dataclass(frozen=True, eq=False)
class VisitedPlace:
    """One place that the trace has visited."""

    kind: PlaceKind
    owner: Any
    key: Any
    holder: Any
    """The object whose attributes the dictionary holds, or None."""
    first: Any
    """The first content; ABSENT for nothing; for a container, its members as a tuple."""
    after: Any
    read_first: bool
    """True if the place was read before it was written to: then the next call finds the value that this one has left."""
    read_after: bool
    """True if the place was read after something else was written there: then it holds a value of the step."""
    written: bool
    code: CodeType | None
    """The code whose instruction wrote first, or else read first."""
    offset: int

    @property
    def is_left(self) -> bool:
        """True if the place holds something else now."""
        if _is_tracers(self.first):
            return False  # the tracer puts these back itself
        if self.first is ABSENT and is_imported(self.owner, self.key, self.after):
            return False
        return not same(self.first, self.after, (tuple, list, weakref.ref))

    @property
    def location(self) -> SourceLocation | None:
        """Return the line that wrote to it, if it is the user's."""
        if self.code is None or not is_users_file(self.code.co_filename):
            return None
        line = next((n for begin, end, n in self.code.co_lines() if begin <= self.offset < end), None)
        return SourceLocation(self.code.co_filename, line) if line is not None else None


def _is_tracers(value: Any) -> bool:
    """True if the value belongs to the tracer, or is a container with a member that does, like one of our hooks among
    torch's.
    """
    if type(value) is tuple:
        return any(map(_is_tracers, cast("tuple[Any, ...]", value)))
    return is_a(value, (*TRACED, Replaced)) or (
        is_a(value, (FunctionType, type)) and (value.__module__ or "").startswith("aicf_mlir.")
    )


def forget(owners: Sequence[Any]) -> None:
    """Empty the result caches of functions that have computed something: no object of a trace may be found there."""
    ran = {owner for owner in owners if is_a(owner, FunctionType)}
    for owner in owners:
        if is_a(owner, CACHED) and owner.__wrapped__ in ran:
            owner.cache_clear()


def _young() -> Iterator[Any]:
    """Return the objects of the youngest generation, for C code alone to walk: no other thread runs meanwhile.

    Python makes a tuple of an iterator in place and fails if anybody holds it before it is whole, as a list of them would.
    """
    return chain.from_iterable(map(gc.get_objects, (0,)))


def without_made(places: Sequence[VisitedPlace]) -> list[VisitedPlace]:
    """Return the places of objects that are older than a trace; objects made by the trace are reachable only through
    these.

    The collector was off during the trace: its youngest generation holds the objects that the trace has made. A
    dictionary joins it once it first holds a container, and arrays never join: these objects count as older if an
    older object holds them.
    """
    made = {id(place.owner) for place in places} & set(map(id, _young()))
    older = {id(place.first) for place in places if id(place.owner) not in made}
    chosen = [
        place
        for place in places
        if issubclass(type(place.owner), dict) or not gc.is_tracked(place.owner)
        if place.is_left or place.kind == "opaque" or id(place.owner) in made
    ]
    keys = {id(place.owner) for place in chosen}
    referents = chain.from_iterable(map(gc.get_referents, _young()))
    held = Counter(filter(keys.__contains__, map(id, referents)))  # there are many
    unsure = {id(place.owner): place.owner for place in chosen}
    for key in unsure:
        if (
            key not in older and sys.getrefcount(unsure[key]) - 2 <= held[key]
        ):  # references are held here, and by the call
            made.add(key)
        else:
            made.discard(key)
    return [place for place in places if id(place.owner) not in made]


class TracedPlaces:
    """The places of one trace."""

    def __init__(self) -> None:
        self.all: Sequence[VisitedPlace] = ()

    @contextmanager
    def recording(self) -> Generator[None]:
        """Record the user's code, in the thread that runs it. The places are known after `take`."""
        _C.places.begin(OWN, LIBRARY, torch.Tensor, OPAQUE, ARRAYS)
        try:
            with not_recorded():
                yield
        finally:
            _C.places.end()

    @contextmanager
    def taken(self) -> Generator[None]:
        """Record during a trace. Once its frames are gone, the places are known, even if the trace fails."""
        is_on = gc.isenabled()
        gc.disable()
        gc.collect(0)
        try:
            yield
        finally:
            forget(_C.places.owners())
            self.all = without_made([VisitedPlace(*row) for row in _C.places.taken(ABSENT)])
            if is_on:
                gc.enable()

    def left(self) -> Iterator[VisitedPlace]:
        """Yield the places whose content differs from the first."""
        return (place for place in self.all if place.is_left)

    def carried(self) -> Iterator[VisitedPlace]:
        """Yield the places that the next call would compute with: left changed, and read before they were written; also
        advanced iterators.
        """
        for place in self.all:
            if place.kind == "opaque" or (place.is_left and place.read_first):
                yield place


pause, resume = _C.places.pause, _C.places.resume
"""Work of torch and AICF for a step is not recorded: `pause` returns True if this thread was recording, and may resume."""


def of_step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` without recording. The lookups of a torch function in Python (as `F.relu`) do belong to the step."""
    if not is_a(function, FunctionType):
        return function

    def recorded(*args: Any, **kwargs: Any) -> Any:
        resume()
        try:
            return function(*args, **kwargs)
        finally:
            pause()

    return recorded


class PlaceNames:
    """Names of places as the user would write them: `model.layers.0.scale`, `weights['kl']`, `CFG.n`."""

    def __init__(self, places: Sequence[VisitedPlace], roots: Mapping[int, str]):
        """Take `roots`: names of objects by their id."""
        self._roots = roots
        self._found: dict[int, tuple[Any, Any]] = {}
        """The place where each object was found, by its id: owner and key, or for a dictionary the object whose
        attributes it holds.
        """
        for place in places:
            if place.holder is not None:
                self._found.setdefault(id(place.owner), (place.holder, None))
        for place in sorted(places, key=lambda place: not _is_users(place)):
            if place.kind in ("item", "cell", "class", "slot", "context"):
                for value in (place.first, place.after):
                    if type(value) not in PLAIN and value is not ABSENT:
                        self._found.setdefault(
                            id(value), (place.owner, place.key if place.key is not None else _Inside(place))
                        )
        for place in places:
            if place.kind == "content" and type(place.first) is tuple:
                self._add_members(place)

    def _add_members(self, place: VisitedPlace) -> None:
        """Add the members that a container has held, by key or index."""
        if is_a(place.owner, dict):
            members = zip(place.first[::2], place.first[1::2], strict=True)
        else:
            members = enumerate(place.first) if is_a(place.owner, list) else ()
        for key, value in members:
            if type(value) not in PLAIN:
                self._found.setdefault(id(value), (cast(Any, place.owner), key))

    def name(self, place: VisitedPlace) -> str:
        """Return the name of a place."""
        if place.kind == "class":
            return f"{place.owner.__name__}.{place.key}"
        if place.kind == "code":
            return place.owner.__qualname__.rpartition("<locals>.")[2]
        if place.kind == "cell":
            return self._of_cell(place) or "a variable"
        return self.path(place.owner) if place.key is None else self._joined(place.owner, place.key)

    def path(self, value: Any, depth: int = 12) -> str:
        """Return the name of an object."""
        if (root := self._roots.get(id(value))) is not None:
            return root
        if is_a(value, (type, ModuleType)) and id(value) not in self._found:
            return value.__name__
        if depth and (found := self._found.get(id(value))) is not None:
            owner, key = found
            if is_a(key, _Inside):
                return self.name(key.place)
            return self.path(owner, depth - 1) if key is None else self._joined(owner, key, depth - 1)
        return type(value).__name__

    def key(self, key: Any) -> str:
        """Return the key of an entry: plain ones as they are written, any other object by its name."""
        return repr(key) if type(key) in PLAIN else self.path(key)

    def _joined(self, owner: Any, key: Any, depth: int = 12) -> str:
        holder, of = self._found.get(id(owner), (None, None))
        if holder is not None and of is None:
            return f"{self.path(holder, depth)}.{key}"
        if of in STRUCTURE and is_a(holder, dict):
            return f"{self.path(holder, depth).rpartition('.' + of)[0] or self.path(holder, depth)}.{key}"
        if is_a(owner, dict):
            if ("__builtins__" in owner and "__name__" in owner) or owner is builtins.__dict__:
                return str(key)
            return f"{self.path(owner, depth)}[{self.key(key)}]"
        if is_a(owner, (list, tuple)):
            return f"{self.path(owner, depth)}[{key}]"
        return f"{self.path(owner, depth)}.{key}"

    def _of_cell(self, place: VisitedPlace) -> str | None:
        """Return the name of a cell as the code that uses it calls it."""
        return None if place.code is None else _deref(place.code, place.offset)


@dataclass(frozen=True)
class _Inside:
    """A marker for the place itself, if it has no key."""

    place: VisitedPlace


def _is_users(place: VisitedPlace) -> bool:
    return place.code is not None and is_users_file(place.code.co_filename)


def _deref(code: CodeType, offset: int) -> str:
    """Return the variable of an instruction that loads or stores one of a closure."""
    argument, shift, at = code.co_code[offset + 1], 8, offset - 2
    while at >= 0 and code.co_code[at] == dis.EXTENDED_ARG:
        argument |= code.co_code[at + 1] << shift
        shift, at = shift + 8, at - 2
    names = [
        *code.co_varnames,
        *(n for n in code.co_cellvars if n not in code.co_varnames),
        *code.co_freevars,
    ]
    return names[argument]
