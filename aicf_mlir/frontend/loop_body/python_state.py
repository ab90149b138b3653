"""The Python places around a loop body: numbers that it reads before each step, and values that it leaves after each.

`total += loss.item()` reads a number, adds one that is known after the step, and leaves the sum. So the place holds a `Number`
while the body is traced; what the body leaves there is an expression, which Python computes and stores after each step. A
number that other code changes between two steps is followed in the same way, once it has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.carried import Key, key_of, kind_of, set_content
from aicf_mlir.frontend.loop_body.decided import DECIDED, is_decided_where_written
from aicf_mlir.frontend.loop_body.numbers import Book, Number, held
from aicf_mlir.frontend.loop_body.returned import is_like
from aicf_mlir.frontend.loop_body.texts import is_marked
from aicf_mlir.frontend.places import PlaceNames, VisitedPlace
from aicf_mlir.frontend.reads import ABSENT, Kind, Read
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.values import DEQUE, LIST, is_a, items, same

Request = tuple[Any, str, tuple[Any, ...], dict[str, Any]]
"""A call to make: its owner, the method, and the arguments by position and by name."""

ONE: tuple[Kind, ...] = ("item", "cell", "slot")
"""Kinds of places with one value."""
FLAGS = (bool, str, type(None))
"""The types of values that are guarded where a body reads and leaves them."""
LIKELY = 1.0
"""The number that a trace takes for one that is known after a step."""
NUMBERS = (int, float)
"""The types of numbers that are followed."""


class NewPlaces(Exception):
    """The body leaves other content in places that its trace did not know."""


class KeptPlace:
    """One place, with the value that it held before the last step."""

    def __init__(self, place: VisitedPlace, name: str):
        self.kind: Any = place.kind
        self.owner: Any = place.owner
        self.key = place.key
        self.name = name
        self.held: Any = ABSENT
        self._begun: Any = ABSENT
        """What it holds as a trace begins."""
        self._is_dict: bool = is_a(place.owner, dict)
        self._kind: Any = LIST if is_a(place.owner, list) else DEQUE

    def content(self) -> Any:
        """Return what it holds now; the members of a container as a tuple."""
        if self.kind in ONE:
            return Read(self.name, self.kind, self.owner, self.key).value()
        if self._is_dict:
            return tuple(chain.from_iterable(items(self.owner)))
        return tuple(self._kind.__iter__(self.owner))

    def take(self) -> None:
        """Remember the value that it holds."""
        self.held = self.content()

    def begin(self) -> None:
        """Remember what a trace begins with."""
        self._begun = self.content()

    def put(self, value: Any) -> None:
        """Store a value, or the members of a container."""
        set_content(cast(VisitedPlace, self), value)

    def put_back(self, value: Any) -> None:
        """Store what was there, if it is no longer."""
        if not same(self.content(), value):
            self.put(value)

    def add(self, members: Iterable[Any]) -> None:
        """Add members to the end of a list or a deque, or entries to a dictionary."""
        if self._is_dict:
            kind = kind_of(self.owner)
            for key, value in members:
                kind.__setitem__(self.owner, key, value)
        else:
            self._kind.extend(self.owner, members)

    def left(self) -> Iterator[Request]:
        """Yield the calls that do after each step what a trace has done to it. Raises TraceError if none do."""
        before, after = self._begun, self.content()
        if same(before, after):
            return
        if self.kind in ONE:
            if after is ABSENT:
                raise self._refusal("deletes")
            yield self, "put", (after,), {}
            return
        more: list[Any] | None = None
        if not self._is_dict:
            most = None if self._kind is LIST else DEQUE.maxlen.__get__(self.owner)
            more = added(before, after, most)
        elif before[::2] == after[: len(before) : 2]:  # keys that a trace knows are plain
            old = before[1::2]
            pairs = list(zip(after[::2], after[1::2], strict=True))
            more = [pair for n, pair in enumerate(pairs) if n >= len(old) or not same(old[n], pair[1])]
        if more is None:
            raise self._refusal("changes")
        yield self, "add", (more,), {}

    def _refusal(self, how: str) -> TraceError:
        return trace_error(
            f"the loop body {how} {self.name} other than by adding to its end, which would happen once, while it is traced; do"
            " so outside, with what the step returns"
        )


def added(before: Sequence[Any], after: Sequence[Any], most: int | None) -> list[Any] | None:
    """Return the members that were added to the end of a list, or of a deque of `most` members; None if more was done."""
    for count in range(1, len(after) + 1):
        kept = len(after) - count
        is_all = kept == len(before) or (most is not None and len(after) == most and kept < len(before))
        if is_all and all(map(_is, after[:kept], before[len(before) - kept :])):
            return list(after[kept:])
    return None


def _is(one: Any, other: Any) -> bool:
    return one is other


class PythonState:
    """The places of one body, as its traces find them."""

    def __init__(self) -> None:
        self._left: dict[Key, KeptPlace] = {}
        """Those that the body leaves with other content."""
        self._numbers: dict[Key, KeptPlace] = {}
        """Those that hold a Number while the body is traced."""
        self._constant: set[Key] = set()
        """Those whose number stays a constant, with a guard."""
        self._read: list[tuple[KeptPlace, Any]] = []
        """The numbers that the last trace has read as constants."""
        self.book = Book()

    @property
    def number_keys(self) -> set[Key]:
        """The keys of the places that hold a Number while the body is traced."""
        return {key for key, place in self._numbers.items() if type(place.held) in NUMBERS}

    @property
    def keys(self) -> set[Key]:
        """The keys of the places that are known."""
        return {*self._left, *self._numbers}

    @property
    def places(self) -> list[KeptPlace]:
        """The places that are known."""
        return list((self._left | self._numbers).values())

    def begin(self) -> None:
        """Follow the numbers that have changed since the last trace."""
        for place, before in self._read:
            key, now = key_of(place), place.content()
            if key not in self._constant and type(now) in NUMBERS and not same(before, now):
                self._numbers[key] = place

    def moves(self, places: Sequence[VisitedPlace]) -> list[tuple[KeptPlace, Any]]:
        """Return what the next call would find in the places that a trace needed at once, and that it has left otherwise."""
        needed = {
            place for number, value in self.book.needed if type(value) is not bool for place in number.kept
        }
        by_key = {key_of(place): place for place in places if place.read_first}
        moved: list[tuple[KeptPlace, Any]] = []
        for key, place in self._left.items():
            visited = by_key.get(key)
            if visited is not None and visited.is_left and (key not in self._numbers or place in needed):
                after = visited.after
                if type(after) is Number:
                    after = after.compute() if after.is_known else LIKELY
                moved.append((place, after))
        return moved

    @contextmanager
    def moved(self, moves: Sequence[tuple[KeptPlace, Any]]) -> Generator[None]:
        """Let places hold what the next call would find there."""
        before = [(place, place.content()) for place, _ in moves]
        try:
            for place, value in moves:
                place.put(value)
            yield
        finally:
            for place, value in before:
                place.put(value)
            for place in self.places:
                place.take()

    @contextmanager
    def numbers_in(self) -> Generator[None]:
        """Put a Number in each place that holds a number, while a body is traced."""
        self.book.needed.clear()
        for place in self.places:
            place.take()
        put = [place for place in self._numbers.values() if type(place.held) in NUMBERS]
        try:
            for place in put:
                place.put(Number(held, (place,), self.book))
            for place in self._left.values():
                place.begin()
            yield
        finally:
            for place in put:
                place.put(place.held)

    def requests(self) -> list[Request]:
        """Return what Python does after each step to what a trace has left. Raises TraceError for what it cannot do."""
        return [request for place in self._left.values() for request in place.left()]

    def keep(
        self,
        effects: Iterable[VisitedPlace],
        names: PlaceNames,
        refusal: Callable[[VisitedPlace], TraceError],
    ) -> None:
        """Let places be left with other content. Raises NewPlaces if any was not known, TraceError if one cannot be."""
        is_new = False
        for place in effects:
            key, is_one = key_of(place), place.kind in ONE
            code = place.code if is_one and is_marked(place.after) else None
            if code is not None and is_decided_where_written(code, place.offset, str(place.key)):
                raise trace_error(f"the loop body {DECIDED}", place.location)
            if not is_one and (
                place.read_first or place.kind != "content" or not is_a(place.owner, (list, deque, dict))
            ):
                raise refusal(place)
            if is_one and place.read_first and type(place.first) is not Number:
                if type(place.first) in NUMBERS:
                    self._numbers[key] = self._place(place, names)
                    is_new = True
                elif type(place.first) not in FLAGS:
                    raise refusal(place)
            if key not in self._left:
                self._left[key] = self._place(place, names)
                is_new = True
        if is_new:
            raise NewPlaces

    def _place(self, place: VisitedPlace, names: PlaceNames) -> KeptPlace:
        known = self._left | self._numbers
        return known.get(key_of(place)) or KeptPlace(place, names.name(place))

    def settle(self, places: Sequence[VisitedPlace], names: PlaceNames) -> None:
        """Forget what a trace has not visited, and note the numbers that it has read as constants."""
        visited = {*map(key_of, places)}
        self._left = {key: place for key, place in self._left.items() if key in visited}
        self._numbers = {key: place for key, place in self._numbers.items() if key in visited}
        self._read = [
            (KeptPlace(place, names.name(place)), place.first)
            for place in places
            if place.kind in ONE and place.read_first and type(place.first) in NUMBERS
            if place.location is not None and not is_a(place.holder, torch.nn.Module)
        ]

    def gives_up(self) -> bool:
        """Return True if a body that cannot be traced may be with constants in place of numbers that it does not change."""
        texts = self.book.texts
        if texts.numbers and not texts.at_once:
            texts.at_once = True
            return True
        followed = self._numbers.keys() - self._left.keys()
        self._constant |= followed
        self._numbers = {key: place for key, place in self._numbers.items() if key not in followed}
        return bool(followed)

    def reads(self) -> list[Read]:
        """Return what the step depends on: the numbers that Python needed at once, and the kinds of the others."""
        kinds = [Number(held, (place,), self.book).of(type_of) for place in self._numbers.values()]
        needed: list[Any] = []
        for number, _ in self.book.needed:
            if not any(is_like(number, other) for other in needed):
                needed.append(number)
        return [
            Read(_named(each), "number", each, may_be_host_scalar=_is_place(each))
            for each in (*kinds, *needed)
        ]


def type_of(value: Any) -> Any:
    """Return the type of a value, as a function with a name of its own."""
    kind: Any = type
    return kind(value)


def _is_place(number: Any) -> bool:
    return type(number) is Number and number.function is held


def _named(number: Any) -> str:
    """Return what a number is, in words."""
    if type(number) is not Number:
        return str(number)
    names = ", ".join(dict.fromkeys(place.name for place in number.kept))
    if number.function is held:
        return names
    return f"the type of {names}" if number.function is type_of else f"what follows from {names}"
