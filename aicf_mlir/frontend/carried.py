"""Changes that a call of a step leaves in Python: they are put back, and refused if the next call would compute with
them.

A compiled step runs no Python. If a call reads a place and then writes another value there, the next call would find
that value. The step is traced again from that state and must be the same. A value that is written and never read makes
no difference.
"""

from __future__ import annotations

import warnings
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import CodeType
from typing import Any, cast

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.places import PlaceNames, VisitedPlace
from aicf_mlir.frontend.reached import opaque_error
from aicf_mlir.frontend.reads import ABSENT
from aicf_mlir.frontend.recorder import tensors
from aicf_mlir.frontend.source import is_installed, trace_error
from aicf_mlir.frontend.special import TRACED
from aicf_mlir.frontend.values import DEQUE, DICT, LIST, SET, alike, is_a
from aicf_mlir.ir.locations import SourceLocation

FLAGS = (bool, str, type(None), int, float)
Members = tuple[Any, ...]
Key = tuple[str, int, Any]
FAR = 1_000_000_000
"""The amount added to a number that a step counts, to see if it matters later."""


class Followed(TorchFunctionMode):
    """Follows the tensors that are computed from inputs that may differ at the next call."""

    def __init__(self) -> None:
        super().__init__()
        self._sources: list[tuple[torch.Tensor, int]] = []
        self._found: dict[int, tuple[torch.Tensor, frozenset[int]]] = {}
        """Tensors by their id, each with the numbers of the sources that it is computed from."""

    def begin(self, changing: Iterable[torch.Tensor], buffers: Iterable[torch.Tensor]) -> None:
        """Start with the `changing` tensors, the batch and parameters; a buffer in `buffers` counts if it is written to
        meanwhile.
        """
        self._sources = [*((each, -1) for each in changing), *((each, each._version) for each in buffers)]
        self._found = {id(source): (source, frozenset([i])) for i, (source, _) in enumerate(self._sources)}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if origins := self._origins((args, kwargs or {})):
            self._found.update({id(tensor): (tensor, origins) for tensor in tensors(result)})
        return result

    def varies(self, value: object) -> bool:
        """True if a tensor in `value` may differ at the next call: a table computed from a constant buffer does not."""
        return any(
            self._sources[number][0]._version != self._sources[number][1] for number in self._origins(value)
        )

    def _origins(self, value: object) -> frozenset[int]:
        found = (self._found.get(id(tensor)) for tensor in tensors(value))
        return frozenset[int]().union(*(origins for _, origins in filter(None, found)))


def put_back(places: Sequence[VisitedPlace]) -> None:
    """Restore the first content of each place."""
    for place in reversed(places):
        if place.is_left:
            set_content(place, place.first)


def put_forth(places: Sequence[VisitedPlace]) -> None:
    """Restore the content that the call has left in each place."""
    for place in places:
        if place.is_left and not is_traced(place.after):
            set_content(place, place.after)


def set_content(place: VisitedPlace, value: Any) -> None:
    """Store a value in a place; for a container its members."""
    owner: Any = place.owner
    match place.kind:
        case "item" if value is ABSENT:
            if DICT.__contains__(owner, place.key):
                kind_of(owner).__delitem__(owner, place.key)
        case "item":
            kind_of(owner).__setitem__(owner, place.key, value)
        case "class" if not is_a(owner, type) or owner.__flags__ & (1 << 8):  # immutable
            pass
        case "class" if value is ABSENT:
            if place.key in vars(owner):
                type.__delattr__(owner, place.key)
        case "class":
            type.__setattr__(owner, place.key, value)
        case "slot":
            bases: Sequence[type] = cast(Any, type(owner)).__mro__
            descriptor: Any = next(vars(c)[place.key] for c in bases if place.key in vars(c))
            descriptor.__delete__(owner) if value is ABSENT else descriptor.__set__(owner, value)
        case "cell" if value is ABSENT:
            del owner.cell_contents
        case "cell":
            owner.cell_contents = value
        case "context" if value is not ABSENT:
            cast(Any, owner).set(value)
        case "content" if value is not ABSENT:
            _fill(owner, value)
        case _:
            pass


def kind_of(owner: Any) -> Any:
    """Return the type whose methods change a dictionary: an ordered one keeps its keys twice, and dict's own would
    change only one.
    """
    return OrderedDict if is_a(owner, OrderedDict) else DICT


def _fill(owner: Any, members: Any) -> None:
    if is_a(owner, dict):
        kind = kind_of(owner)
        kind.clear(owner)
        for key, value in zip(members[::2], members[1::2], strict=True):
            kind.__setitem__(owner, key, value)
    elif is_a(owner, list):
        LIST.__setitem__(owner, slice(None), members)
    elif is_a(owner, deque):
        DEQUE.clear(owner)
        DEQUE.extend(owner, members)
    elif is_a(owner, set):
        SET.clear(owner)
        SET.update(owner, members)
    elif is_a(owner, bytearray):
        owner[:] = members
    elif is_a(owner, array):
        del owner[:]
        owner.frombytes(members)
    elif owner.flags.writeable and not owner.dtype.hasobject:
        owner[...] = np.frombuffer(members, owner.dtype).reshape(owner.shape)


def key_of(place: Any) -> Key:
    """Return a key that is equal for two of one place."""
    return place.kind, id(place.owner), place.key


def is_traced(value: object) -> bool:
    """True if the value is, or holds, a tensor of the tracer."""
    return any(is_a(tensor, TRACED) for tensor in tensors(value))


def is_memo(place: VisitedPlace, read: Container[int] = ()) -> bool:
    """True for entries that code of an installed package misses and makes, such as einops' backend of a type of tensor. A
    call that misses them makes them again, and the step with them must be the same (`Carried.plain`). `read`: the ids of
    containers that were looked through before.
    """
    if place.location is None or not is_installed(place.location.file):
        return False
    if not place.read_first and id(place.owner) not in read:
        return False
    first: Members = () if place.first is ABSENT else place.first
    made: Members = (place.after,)
    if place.kind == "content" and is_a(place.owner, dict):
        made = place.after[len(first) :]
        if not alike(first, place.after[: len(first)]):
            return False
    elif place.kind != "item" or place.first is not ABSENT:
        return False
    return not any(type(each) in FLAGS for each in made[-1::-2]) and not any(True for _ in tensors(made))


def is_count(place: VisitedPlace) -> bool:
    """True for a number that a call reads and leaves otherwise, as `self.calls += 1` does."""
    kinds: set[type] = {type(place.first), type(place.after)}
    return place.read_first and place.is_left and kinds <= {int, float}


class Carried:
    """The values in `places` that a call leaves and the next call would compute with."""

    def __init__(
        self,
        places: Sequence[VisitedPlace],
        followed: Followed,
        location: SourceLocation | None,
        kept: Container[Key] = (),
    ):
        """Take `kept`: the places into which Python stores, after each step, what the call has left."""
        self.places = places
        self.others = [place for place in places if key_of(place) not in kept]
        """The places that are not kept."""
        self._location = location
        found = [p for p in self.others if p.kind == "opaque" or (p.is_left and p.read_first)]
        self.opaque = [place for place in found if place.kind == "opaque"]
        self.hidden = [p for p in found if is_traced(p.after) and followed.varies(p.after)]
        """Places with a tensor that differs at each call."""
        traced = [place for place in places if place.is_left and is_traced(place.after)]
        self.tables = [place for place in traced if not followed.varies(place.after)]
        """Places with a tensor that each call would compute alike, such as positions: no call needs the old one."""
        self.plain = [p for p in found if p.kind != "opaque" and not is_traced(p.after)]

    @property
    def are_numbers(self) -> bool:
        """True if all values are numbers and were numbers before."""
        return all(type(value) in (int, float) for p in self.plain for value in (p.first, p.after))

    @property
    def is_settled(self) -> bool:
        """True if the next call would find a value like the one this call found, even if it is a new object."""
        return all(alike(place.first, place.after) for place in self.plain)

    def move_on(self, by: int) -> None:
        """Add `by` to the numbers."""
        for place in self.plain:
            set_content(place, place.after + by)

    def refuse_opaque(self, names: Mapping[int, str]) -> None:
        """Raise TraceError for content that cannot be inspected, and for a tensor that the next call computes with."""
        named = PlaceNames(self.places, names)
        if self.opaque:
            raise opaque_error(self.opaque[0], named)
        if self.hidden:
            place, path = self.hidden[0], named.name(self.hidden[0])
            if is_a(place.holder, torch.nn.Module):
                raise self._error(
                    place,
                    f"the step keeps {path} for its next call, which a compiled step would begin anew each time; make it a buffer"
                    " of the model (register_buffer), or pass it in the batch and return it as an output",
                )
            raise self._error(
                place,
                f"the step puts something into {path}, and its next call computes with that, which a compiled step does not find"
                " there; return it as an output, (loss, {name: tensor}), and give it to the next call in the batch",
            )

    def refusal(
        self, names: Mapping[int, str], later: Carried | None = None, *, is_once: bool = False
    ) -> TraceError:
        """Return the error for values that a call changes and computes with; `later`: the changes that a further call
        would find; `is_once`: a further call changes nothing.
        """
        named = PlaceNames(self.places, names)
        again = [(p.kind, id(p.owner), p.key) for p in (later.plain if later is not None else [])]
        place = next((p for p in self.plain if (p.kind, id(p.owner), p.key) in again), self.plain[0])
        path, first = _member(place, named)
        instead = (
            "count in a buffer of the model (register_buffer), or outside of the step, and give it what it computes with in the"
            " batch or by meta="
        )
        if is_once:
            instead = (
                "a second call changes nothing: call the model once, with such a batch, before it is compiled"
            )
        repeats = "and computes with it; a compiled step runs no Python and would repeat the first call"
        if type(first) in FLAGS:
            return self._error(
                place, f"the step changes {path}, from {first}, at a call, {repeats}: {instead}"
            )
        return self._error(place, f"the step changes what {path} holds at a call, {repeats}: {instead}")

    def tell_counts(self, names: Mapping[int, str]) -> None:
        """Warn of numbers that a call counts for others to read: a compiled step leaves them as they are."""
        named = PlaceNames(self.places, names)
        for place in filter(is_count, self.plain):
            location = place.location or self._location
            message = (
                f"the step changes {named.name(place)}, from {place.first}, at a call, and a compiled step does not: count in a"
                " buffer of the model (register_buffer), outside of the step, or in a body for compile_step"
            )
            if location is not None and not is_installed(location.file):
                warnings.warn_explicit(message, UserWarning, location.file, location.line)

    def effects(
        self,
        hooks: frozenset[CodeType],
        *,
        is_body: bool,
        is_known_after: Callable[[Any], bool] = lambda _: False,
    ) -> list[VisitedPlace]:
        """Return the places that a loop body or a forward hook changes outside of modules, or a hook in one; also the numbers of
        a module in which a body leaves a value that `is_known_after` the step.

        A tensor that a hook leaves for the step itself to read, as for a loss of features, is a value of the step.
        """
        left = [place for place in self.places if place.is_left and place.location is not None]
        read = {id(place.owner) for place in left if is_memo(place)}
        left = [place for place in left if not is_memo(place, read)]
        own = {id(place.owner) for place in left if is_known_after(place.after)}
        return [
            place
            for place in left
            if ((is_body or (hooks and not is_passed_on(place))) and not is_a(place.holder, torch.nn.Module))
            or (place.code in hooks and not is_passed_on(place))
            or (id(place.owner) in own and (type(place.after) in (int, float) or is_known_after(place.after)))
            or (is_body and is_count(place))
        ]

    def effect(
        self, place: VisitedPlace, names: PlaceNames, hooks: frozenset[CodeType], *, is_body: bool
    ) -> TraceError:
        """Return the error for such a place, since it would be changed once."""
        what = "loop body" if is_body and place.code not in hooks else "step, which has hooks,"
        return self._error(
            place,
            f"the {what} changes {names.name(place)}, which would happen once, while it is traced; do so outside, with what the"
            " step returns",
        )

    def _error(self, place: VisitedPlace, text: str) -> TraceError:
        return trace_error(text, place.location or self._location)


def is_passed_on(place: VisitedPlace) -> bool:
    """True if each call writes a tensor to a place and reads it there: no call finds that of the one before."""
    return place.read_after and not place.read_first and is_traced(place.after)


def _member(place: VisitedPlace, named: PlaceNames) -> tuple[str, Any]:
    """Return the first changed member of a container and its old value; else the whole container."""
    path = named.name(place)
    before: Any = place.first
    after: Any = place.after
    if place.kind != "content":
        return path, before
    if type(before) is not tuple or len(cast(Members, before)) != len(after):
        return path, ()
    one, other = cast(Members, before), cast(Members, after)
    is_dict = issubclass(type(place.owner), dict)
    keys: Members = one[::2] if is_dict else tuple(range(len(one)))
    pairs = zip(one[1::2], other[1::2], strict=True) if is_dict else zip(one, other, strict=True)
    found = ((f"{path}[{named.key(key)}]", a) for key, (a, b) in zip(keys, pairs, strict=True) if a is not b)
    return next(found, (path, ())) if is_dict or is_a(place.owner, list) else (path, ())
