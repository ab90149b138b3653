"""
What a place could have held instead, to see whether a step computes with what its calls change there.

A list from which each call takes its first number looks like a log as long as the next number is the same one, and a record
that each call makes anew with a larger number in it like one that nobody reads, until a schedule comes to that number.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from aicf_mlir.frontend.reads import Read, is_same

FURTHER = (1, 1_000_000_000)
"""What is added to the numbers that a step counts, to see whether they matter."""

MOST = 8
"""Members that are tried in the place of all others."""

Members = tuple[Any, ...]
Pack = Callable[[Members], Any]


def alternatives(read: Read, before: Any, after: Any) -> Iterator[Any]:
    """
    What to put to `read` in place of `before`, where a call has left `after`.

    Nothing for what is only added: what is there then says whether it matters.
    """
    match read.kind:
        case "items":
            yield from _made(_items, _of_mapping(dict(before), dict(after)))
        case "members" | "equal" | "bytes" if not isinstance(before, (set, frozenset)):
            unpacked, packed = _packing(read.owner)
            yield from _made(packed, _of_members(unpacked(before), unpacked(after)))
        case _:
            yield from _of_value(before, after)


def is_varied(value: Any) -> bool:
    """Whether there may be alternatives to a value that an attribute or a variable has."""
    return isinstance(value, (list, tuple, deque, str, set, frozenset, dict)) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    )


def _of_value(before: Any, after: Any) -> Iterator[Any]:
    kind: Any = before.__class__
    if kind is not after.__class__:
        return
    if isinstance(before, dict):
        yield from _made(kind, _of_mapping(cast(dict[Any, Any], before), after))
    elif isinstance(before, (set, frozenset)):
        taken = tuple(cast(set[Any], before) - after)
        yield from _made(kind, _others(taken, shorter=True) if taken else ())
    elif isinstance(before, (str, list, tuple, deque)):
        packed = "".join if kind is str else getattr(kind, "_make", kind)
        was, now = tuple(cast(Sequence[Any], before)), tuple(after)
        yield from _made(packed, _of_members(was, now, has_names=hasattr(kind, "_make")))
    elif is_varied(before):
        names = [field.name for field in dataclasses.fields(before) if field.init]
        was, now = ({name: getattr(each, name, None) for name in names} for each in (before, after))
        yield from _made(lambda held: dataclasses.replace(before, **held), _of_mapping(was, now))


def _made(kind: Callable[[Any], Any], contents: Iterable[Any]) -> Iterator[Any]:
    """Those of `contents` that can be made: a byte holds no billion, and a record may refuse one."""
    for content in contents:
        try:
            made = kind(content)
        except Exception:  # noqa: BLE001 - a class of the user's may raise anything
            continue
        yield made


def _of_mapping(was: Mapping[Any, Any], now: Mapping[Any, Any]) -> Iterator[dict[Any, Any]]:
    """Other numbers where numbers are others by now, and other values in place of those that are gone."""
    replaced = [key for key in was if key in now and _is_counted(was[key], now[key])]
    for number in FURTHER if replaced else ():
        yield {**was, **{key: was[key] + number for key in replaced}}
    taken = [key for key in was if key not in now]
    for values in _others(tuple(was[key] for key in taken), shorter=False):
        yield {**was, **dict(zip(taken, values, strict=True))}


def _of_members(was: Members, now: Members, *, has_names: bool = False) -> Iterator[Members]:
    """Other numbers where numbers are others by now, and others for all that may have moved; what has a name does not move."""
    if len(now) >= len(was) and is_same(now[: len(was)], was):
        return
    if len(was) == len(now):
        for number in FURTHER if any(map(_is_counted, was, now)) else ():
            yield tuple(a + number if _is_counted(a, b) else a for a, b in zip(was, now, strict=True))
    if len(was) != len(now) or (not has_names and _has_moved(was, now)):
        yield from _others(was, shorter=len(now) < len(was))


def _others(members: Members, *, shorter: bool) -> Iterator[Members]:
    """Other members, as many; none at all if there may be fewer."""
    distinct: list[Any] = []
    for member in members:
        if len(distinct) == MOST:
            break
        if not any(is_same(member, each) for each in distinct):
            distinct.append(member)
    tried = (tuple(map(_another, members)), *((each,) * len(members) for each in distinct))
    yield from (each for each in tried if not is_same(each, members))
    if shorter:
        yield ()


def _has_moved(was: Members, now: Members) -> bool:
    """Whether members of `was` are further to the front, or to the back, in `now`, which has as many."""
    return any(
        _are_same(now[:-by], was[by:]) or _are_same(now[by:], was[:-by])
        for by in range(1, min(len(was), MOST))
    )


def _are_same(some: Members, others: Members) -> bool:
    """Whether members are, and of the same types: a 1 that has become 1.0 is no number that has moved."""
    return is_same(some, others) and [*map(type, some)] == [*map(type, others)]


def _is_counted(before: Any, after: Any) -> bool:
    return all(type(each) in (int, float) for each in (before, after)) and before != after


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float, complex)):
        return value + 1
    return f"{value} " if isinstance(value, str) else value


def _items(held: dict[Any, Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple(held.items())


def _packing(owner: Any) -> tuple[Callable[[Any], Members], Pack]:
    """From what `Read.value` gives of an ordered container to its members, and back."""
    if isinstance(owner, bytearray):
        return tuple, lambda members: bytes(number % 256 for number in members)
    if isinstance(owner, array):
        code = owner.typecode
        return lambda held: tuple(array(code, held)), lambda members: array(code, members).tobytes()
    if isinstance(owner, np.ndarray):
        kind = cast("np.ndarray[Any, np.dtype[Any]]", owner).dtype
        return (
            lambda held: tuple(np.frombuffer(held, kind).tolist()),
            lambda members: np.array(members, kind).tobytes(),
        )
    return tuple, tuple
