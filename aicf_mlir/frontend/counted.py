"""Numbers that a step counts in Python: torch's next call goes on from them, and a compiled step would repeat the first."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import torch

from aicf_mlir.frontend.alternatives import is_varied
from aicf_mlir.frontend.functions import is_users_class
from aicf_mlir.frontend.inspecting import inspection
from aicf_mlir.frontend.reached import settled
from aicf_mlir.frontend.reads import ABSENT, STRUCTURE, Kind, Read, is_same, named_modules
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.source import is_users_file, of_function, trace_error
from aicf_mlir.frontend.special import TRACED
from aicf_mlir.frontend.walk import Walk
from aicf_mlir.ir.locations import SourceLocation

Place = tuple[str, Any, Any]
"""The path as the user would write it; a dictionary, a list, a closure cell or an object; its key, index or attribute."""

FLAGS = (bool, str, type(None), int, float)
"""Types of what else code may decide by, in tuples too."""

CONTAINERS: dict[type, Kind] = {
    **dict.fromkeys((dict, defaultdict, OrderedDict, Counter), "items"),
    list: "members",
    deque: "equal",
    set: "equal",
    **dict.fromkeys((np.ndarray, array, bytearray), "bytes"),
}
"""What code may write to in place, and how that is seen."""

IN_PLACE = frozenset(CONTAINERS.values())


class Left(NamedTuple):
    """Where something was left."""

    read: Read
    before: Any
    after: Any

    @property
    def is_in_place(self) -> bool:
        """Whether a container was written to: else there is another value in its place."""
        return self.read.kind in IN_PLACE

    @property
    def is_traced(self) -> bool:
        """Whether it is, or holds, a tensor of the tracer."""
        return _has_traced(self.after)


Numbers = dict[Hashable, float]
"""What was in places that have an int or a float, by place."""


class Counters:
    """The numbers that a step `function(model, batch)` reaches: attributes of its modules, and what its code names."""

    @inspection
    def __init__(self, model: torch.nn.Module, function: Callable[..., Any]):
        functions: dict[int, tuple[Callable[..., Any], str]] = {id(function): (function, "loss_fn")}
        modules = [*named_modules(model)]
        for path, module in modules:
            forward = type(module).forward
            if is_users_file(getattr(getattr(forward, "__code__", None), "co_filename", "<builtin>")):
                functions.setdefault(id(forward), (forward, f"model.{path}.forward".replace("..", ".")))
        self._functions = [*functions.values()]
        self._location = of_function(function) or of_function(type(model).forward)
        self._modules = {id(module): (f"model.{path}".rstrip("."), module) for path, module in modules}
        walk = settled(self._follow)
        self._reads = walk.reads
        self.caches = walk.caches
        self.of_users_code = bool(walk.functions)
        """Whether there is any; functions of torch alone do the same at each call."""
        for path, module in walk.modules.items():
            for inner, part in named_modules(module):
                self._modules.setdefault(id(part), (f"{path}.{inner}".rstrip("."), part))
        self._first = self.now()
        self._flags = {
            place: value for place, value in self._plain(_is_flag).items() if place not in self._first
        }
        containers = [
            Read(path, kind, _get(owner, key))
            for path, owner, key in self._places()
            if type(owner) is dict and key not in STRUCTURE
            for container, kind in CONTAINERS.items()
            if type(_get(owner, key)) is container
        ]
        containers += [Read(function.__name__, "items", vars(function)) for function in walk.functions]
        self._before = [(read, read.value()) for read in [*self._reads, *containers]]

    def _follow(self, walk: Walk) -> None:
        for function, _ in self._functions:
            walk.mention(function)
        for function, path in self._functions:
            walk.visit(function, path)
        # Who mentions the name of an iterator need not read the one that a module has.
        walk.refuses = False
        for path, module in self._modules.values():
            if is_users_class(type(module)):
                for name in sorted(walk.mentioned):
                    walk.attribute(module, name, f"{path}.{name}")

    def _places(self) -> Iterator[Place]:
        for path, module in self._modules.values():
            own = vars(module)
            yield from ((f"{path}.{name}", own, name) for name in own)
        for read in self._reads:
            yield from _places_of(read)

    @inspection
    def now(self) -> Numbers:
        """What is there now."""
        return self._plain(_is_number)

    def _plain(self, is_one: Callable[[Any], bool]) -> dict[Hashable, Any]:
        values = {(id(owner), key): _get(owner, key) for _, owner, key in self._places()}
        return {place: value for place, value in values.items() if is_one(value)}

    def moved(self) -> set[Hashable]:
        """The places whose number is another one than at the beginning."""
        return differing(self._first, self.now())

    @inspection
    def left(self) -> list[Left]:
        """
        What holds something else than at the beginning: containers, written to or others in their places, and records.

        And each place where there is a tensor of the tracer.
        """
        now = [(read, before, read.value()) for read, before in self._before]
        return [
            Left(read, before, value)
            for read, before, value in now
            if _has_traced(value)
            or ((read.kind in IN_PLACE or is_varied(before)) and not is_same(value, before))
        ]

    def refuse_left(self, left: Left) -> NoReturn:
        """TraceError for what the next call computes with."""
        raise trace_error(
            f"the step puts something into {left.read.path}, and its next call computes with that, which a compiled step does"
            " not find there; return it as an output, (loss, {name: tensor}), and give it to the next call in the batch",
            self._location,
        )

    def refuse_changed(self, left: Left) -> NoReturn:
        """TraceError for a place that a call changes and computes with."""
        raise trace_error(
            f"the step changes what {left.read.path} holds at a call, and computes with it; a compiled step runs no Python and"
            " would repeat the first call: change it outside of the step, and give it what it computes with in the batch or by"
            " meta=",
            self._location,
        )

    @contextmanager
    def restored(self) -> Generator[None]:
        """Afterwards every place is as at the beginning."""
        try:
            yield
        finally:
            for left in self.left():
                left.read.put_back(left.before)
            self.put_back()

    @inspection
    def put_back(self) -> None:
        """All numbers as at the beginning."""
        first = {**self._flags, **self._first}
        for _, owner, key in list(self._places()):
            if (place := (id(owner), key)) in first and _get(owner, key) != first[place]:
                _put(owner, key, first[place])

    def further(self, places: set[Hashable], by: int) -> Numbers:
        """The numbers in `places`, so much larger than at the beginning."""
        return {place: self._first[place] + by for place in places}

    @inspection
    def flags(self) -> dict[Hashable, Any]:
        """What else is another one than at the beginning: truth, text, or a number where there was None."""
        now = self._plain(_is_flag)
        return {place: now[place] for place, first in self._flags.items() if now.get(place, first) != first}

    @contextmanager
    def at(self, values: Mapping[Hashable, Any]) -> Generator[None]:
        """`values` in their places; afterwards all are as at the beginning."""
        for _, owner, key in list(self._places()):
            if (place := (id(owner), key)) in values:
                _put(owner, key, values[place])
        try:
            yield
        finally:
            self.put_back()

    def refuse(self, places: Collection[Hashable]) -> NoReturn:
        """TraceError that names one of `places`."""
        path, owner, first = next(
            (path, owner, {**self._flags, **self._first}[id(owner), key])
            for path, owner, key in self._places()
            if (id(owner), key) in places
        )
        raise trace_error(
            f"the step changes {path}, from {first}, at a call, and computes with it; a compiled step runs no Python and would"
            " repeat the first call: count in a buffer of the model (register_buffer), or outside of the step, and give it"
            " what it computes with in the batch or by meta=",
            self._location_of(owner),
        )

    def _location_of(self, owner: Any) -> SourceLocation | None:
        """Where the `forward` of a module begins, from its attributes; else where the step does."""
        forward = next((type(m).forward for _, m in self._modules.values() if vars(m) is owner), None)
        return (forward and of_function(forward)) or self._location


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_flag(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_flag, cast(tuple[Any, ...], value)))
    return type(value) in FLAGS


def differing(before: Numbers, after: Numbers) -> set[Hashable]:
    """The places that have another number, where both have one."""
    return {place for place in before.keys() & after.keys() if before[place] != after[place]}


def _places_of(read: Read) -> Iterator[Place]:
    match read.kind:
        case "item" | "slot" | "class":
            yield read.path, read.owner, read.key
        case "cell":
            yield read.path, read.owner, "cell_contents"
        case "context":
            yield read.path, read.owner, "value"
        case "items":
            yield from ((f"{read.path}[{key!r}]", read.owner, key) for key in read.owner)
        case "members":
            yield from ((f"{read.path}[{i}]", read.owner, i) for i in range(len(read.owner)))
        case _:
            pass


def _get(owner: Any, key: Any) -> Any:
    if isinstance(owner, dict):
        return dict.get(cast(dict[Any, Any], owner), key, ABSENT)
    if isinstance(owner, list):
        return cast(list[Any], owner)[key]
    if isinstance(owner, ContextVar):
        return Read("", "context", owner).value()
    try:
        return getattr(owner, key, ABSENT)
    except ValueError:  # a cell without content
        return ABSENT


def _put(owner: Any, key: Any, value: float) -> None:
    if isinstance(owner, (dict, list)):
        owner[key] = value
    elif isinstance(owner, ContextVar):
        cast(ContextVar[Any], owner).set(value)
    else:
        setattr(owner, key, value)


def _has_traced(value: object) -> bool:
    return any(isinstance(tensor, TRACED) for tensor in tensors(value))
