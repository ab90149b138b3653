"""Values that the traced step read from the user's Python, compared with the current ones.

A changed value does not have to matter: the step is traced again, and if the text is the same, training goes on. If it
is not, the error names the values that changed, before anything else changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from aicf_mlir.errors import AicfError, GuardError
from aicf_mlir.frontend.reads import ABSENT, PARTED, Kind, Read
from aicf_mlir.frontend.torch_state import Word
from aicf_mlir.frontend.values import DICT, is_a, is_constant, same, shown, tokens
from aicf_mlir.runtime.store import moved_error
from aicf_mlir.runtime.torch_words import watch_settings, words_of
from aicf_mlir.runtime.watched import Watched

Retrace = Callable[[], tuple[str, list[Read], bool]]
"""Traces the step again: it returns the reason why the result differs from the compiled step, or an empty text, the new
reads, and True if the step's Python is the same too.
"""


@dataclass(eq=False)
class Guard:
    """One value that the step was compiled for."""

    path: str
    """The path as the user would write it: `model.fc.scale`."""
    kind: Kind
    value: Any
    read: Read

    def __str__(self) -> str:
        return f"{self.path} = {shown(self.value)}  ({self.kind})"


class Guards:
    """The values that a step read, compared before each step."""

    def __init__(
        self,
        name: str,
        reads: Sequence[Read],
        retrace: Retrace,
        live: Mapping[tuple[str, int, str], Callable[[], None]],
    ):
        """Take in `live`, by place, the action for a value that the step follows without being compiled again."""
        self._name = name
        self._retrace = retrace
        self._live = live
        self._ignored: set[tuple[int, object]] = set()
        """The entries of dictionaries whose changes did not matter and whose keys the code does not mention."""
        self._harmless: set[frozenset[tuple[str, str]]] = set()
        """The values that were found to give the same step, all of the places that changed last; others are as they
        were.
        """
        self.watched = Watched()
        self.guards: list[Guard] = []
        self._code = Watched()
        self._guards_of_code: list[Guard] = []
        """The places of code, compared one by one only if a word of them has changed."""
        self._watch(reads)

    def _watch(self, reads: Sequence[Read]) -> None:
        self.watched.clear()
        self.guards = []
        names: dict[int, tuple[dict[str, Any], list[str]]] = {}
        empty: list[dict[Any, Any]] = []
        code: list[Read] = []
        settings: list[Word] = []
        for read in reads:
            if read.is_code:
                code.append(read)
                continue
            guard = Guard(read.path, read.kind, read.value(), read)
            if (follow := self._live.get(read.place)) is not None:
                self._add(guard, follow)
                continue
            self.guards.append(guard)
            if read.kind == "items" and not DICT.__len__(read.owner):
                empty.append(read.owner)
            elif read.kind == "item":
                names.setdefault(id(read.owner), (read.owner, []))[1].append(read.key)
            elif read.kind == "setting":
                settings += words_of(read.owner)
            else:
                self._add(guard, self._follow)
        for owner, keys in names.values():
            self.watched.namespace(owner, keys, self._follow)
        self.watched.empty(empty, self._follow)
        watch_settings(self.watched, settings, self._follow)
        self._watch_code(code)
        self.watched.other(self._code)

    def _watch_code(self, reads: Sequence[Read]) -> None:
        self._code.clear()
        distinct = {read.place: read for read in reads}.values()
        self._guards_of_code = [Guard(read.path, read.kind, read.value(), read) for read in distinct]
        names: dict[int, tuple[dict[str, Any], list[str]]] = {}
        for read in distinct:
            if read.kind == "item":
                names.setdefault(id(read.owner), (read.owner, []))[1].append(read.key)
        for owner, keys in names.values():
            self._code.namespace(owner, keys, self._follow)

        def owners(kind: Kind) -> list[Any]:
            return [read.owner for read in distinct if read.kind == kind]

        self._code.functions(owners("code"), self._follow)
        self._code.types(owners("type"), self._follow)
        self._code.instances(owners("object"), self._follow)

    def _add(self, guard: Guard, handler: Callable[[], None]) -> None:
        read = guard.read
        match read.kind:
            case "item":
                self.watched.namespace(read.owner, [read.key], handler)
            case "items" if not issubclass(type(read.owner), OrderedDict):
                self.watched.items(read.owner, handler)
            case "members":
                self.watched.members(read.owner, handler)
            case "cell":
                self.watched.cell(read.owner, handler)
            case "class":
                self.watched.class_attribute(read.owner, read.key, handler)
            case "slot":
                self.watched.attribute(read.owner, read.key, read.value(), handler)
            case "bytes":
                expected = read.value()
                if is_a(expected, bytes) and _exports(read.owner):
                    self.watched.bytes(read.owner, expected, handler)
                else:
                    self.watched.call(partial(_holds, guard), True, handler)
            case "equal" | "items" | "number":
                self.watched.call(partial(_holds, guard), True, handler)
            case "values":
                self.watched.call(partial(_has_values, guard), True, handler)
            case "context":
                self.watched.context(read.owner, handler)
            case "environment":
                self.watched.items(cast(Any, vars(read.owner))["_data"], handler)
            case "setting" | "code" | "type" | "object":
                pass  # all of a kind together
            case "file":
                pass  # the text that was read runs, even if the file changes

    def changed(self) -> list[Guard]:
        """Return the guards whose value has changed."""
        guards = [*self.guards, *self._guards_of_code] if self._code.changed() >= 0 else self.guards
        return [guard for guard in guards if not self._same(guard)]

    def _same(self, guard: Guard) -> bool:
        if guard.kind == "values":
            return _has_values(guard)
        now = guard.read.value()
        if guard.kind not in ("items", "environment", "type"):
            return same(guard.value, now)
        before, after = _entries(guard.value), _entries(now)
        if list(before) == list(after) and all(same(before[key], after[key]) for key in before):
            return True
        keys = before.keys() | after.keys()
        owner = id(guard.read.owner)
        differing = {
            k for k in keys if k not in before or k not in after or not same(before[k][1], after[k][1])
        }
        return bool(differing) and all((owner, key) in self._ignored for key in differing)

    def _follow(self) -> None:
        """Continue if the changes do not matter to the step. Raises GuardError if they do."""
        changed = self.changed()
        if not changed:
            return
        for guard in changed:
            if is_a(guard.value, torch.Tensor):
                raise moved_error(guard.path.removeprefix("model."))
        now = tokens([guard.read.value() for guard in changed])
        paths = [guard.path for guard in changed]
        if {frozenset(path for path, _ in values) for values in self._harmless} - {frozenset(paths)}:
            self._harmless.clear()
        if now is not None and frozenset(zip(paths, now, strict=True)) in self._harmless:
            self._accept(changed)
            return
        told = [line for guard in changed for line in _differences(guard)]
        listing = "; ".join(told[:5]) + (f"; and {len(told) - 5} more" if len(told) > 5 else "")
        advice = "set it back, or call recompile() to go on with what is there now"
        numbers = [g for g in changed if type(g.value) in (int, float)]
        if slots := [guard.path for guard in numbers if guard.read.may_be_host_scalar]:
            advice += f'; with meta=["{slots[0]}"] a number may change between steps'
        try:
            difference, reads, is_same = self._retrace()
        except AicfError as error:
            raise GuardError(
                f"{self._name}: {listing}; and the step cannot be traced like this: {error}"
            ) from error
        if difference:
            raise GuardError(
                f"{self._name}: {listing}. The compiled step depends on it ({difference}): {advice}"
            )
        follows = any(guard.kind == "number" for guard in changed)
        if is_same and not follows:  # others may follow from the same places
            before = tokens([guard.value for guard in changed])
            self._harmless |= {
                frozenset(zip(paths, each, strict=True)) for each in (before, now) if each is not None
            }
        else:
            self._harmless.clear()
        for guard in changed:
            if guard.kind in ("items", "environment", "type"):
                self._ignored |= {(id(guard.read.owner), name) for name in _unread(guard)}
        self._accept(changed)
        known = {guard.read.place for guard in (*self.guards, *self._guards_of_code)}
        filled = any(
            guard.kind == "items" for guard in changed
        )  # an entry that was empty is compared in another way
        if (
            filled
            or follows
            or any(read.place not in known and read.place not in self._live for read in reads)
        ):
            self._watch(reads)

    def _accept(self, guards: Sequence[Guard]) -> None:
        for guard in guards:
            guard.value = guard.read.value()


def _unread(guard: Guard) -> Iterator[str]:
    """Yield the names in a dictionary that the code does not mention; in a class, only names of plain values, since
    torch's code names others.
    """
    before, after = _entries(guard.value), _entries(guard.read.value())
    for name in before.keys() | after.keys():
        if type(name) is not str:
            continue
        if guard.kind != "type":
            if name not in guard.read.mentioned:
                yield name
        elif name.rpartition(".")[2] not in guard.read.mentioned:
            held = [entries[name][1] for entries in (before, after) if name in entries]
            if all(map(is_constant, held)):
                yield name


def _differences(guard: Guard) -> Iterator[str]:
    """Yield the changes, in words; of several values by name, the ones that differ."""
    now = guard.read.value()
    if guard.kind == "values":
        yield f"{guard.path} {guard.value.difference(now)}"
        return
    if guard.kind == "number" and (moved := list(guard.read.owner.differences())):
        yield from (f"{name} was {_from_to(*pair)}" for name, *pair in moved)
        return
    if guard.kind not in PARTED:
        yield f"{guard.path} was {_from_to(guard.value, now)}"
        return
    before, after = _entries(guard.value), _entries(now)
    for name in (name for name in {**before, **after} if not same(before.get(name), after.get(name))):
        was, is_now = (entries[name][1] if name in entries else ABSENT for entries in (before, after))
        path = (
            name
            if guard.kind == "type"
            else f"{guard.path}[{name!r}]"
            if guard.kind == "environment"
            else f"{guard.path}.{name}"
        )
        yield f"{path} was {_from_to(was, is_now)}"


def _from_to(before: Any, now: Any) -> str:
    was, is_now = shown(before), shown(now)
    return f"{was}, now {is_now if is_now != was else 'another'}"


def _holds(guard: Guard) -> bool:
    """True if a place holds the value last accepted there."""
    return same(guard.value, guard.read.value())


def _has_values(guard: Guard) -> bool:
    """True if a tensor holds the values that the step was compiled for."""
    return guard.value.is_of(guard.read.owner)


def _exports(array: Any) -> bool:
    """True if an array exposes its memory; NumPy's arrays of dates and of objects do not."""
    try:
        has_objects = issubclass(type(array), np.ndarray) and np.asarray(array).dtype.hasobject
        return not has_objects and memoryview(array).nbytes >= 0
    except (ValueError, TypeError, BufferError):
        return False


def _entries(items: Any) -> dict[Any, tuple[Any, Any]]:
    """Return the entries of a dictionary by key, even if keys compare as tensors do."""
    return {key if type(key) in (str, int) else id(key): (key, value) for key, value in items}
