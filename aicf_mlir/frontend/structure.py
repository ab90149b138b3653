"""The nesting of a batch. A loss function sees dictionaries, dataclasses, tuples and lists of tensors; a plan sees tensors by
name. An entry may be None, and stays None.

{"x": x, "t": t}                  x, t
Example(x=x, t=t), a dataclass    x, t
(x, t)                            0, 1
[{"ids": i, "mask": m}, labels]   0.ids, 0.mask, 1
x, one tensor                     0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, replace
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar, Protocol, TypeAlias, cast

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.names import expect_name
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.values import attributes, held_elsewhere, is_a, members


class OfDataclass(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Batch: TypeAlias = Mapping[str, Any] | Sequence[Any] | OfDataclass | torch.Tensor
"""Tensors in dictionaries, dataclasses, tuples, named tuples and lists, or one tensor."""

Order: TypeAlias = tuple[Any, ...] | None
"""The keys of a dictionary of a batch in their order, each with the order of what it holds; None where there is no dictionary."""

ALONE = "0"
"""The name of a batch that is one tensor."""

FIELDS = "__dataclass_fields__"
"""The attribute of a dataclass that has its fields, those of a class among them."""

DEEPEST = 32
"""The most levels of nesting; more is a container that contains itself."""

EXPECTED = 'a dictionary such as {"x": x, "t": t}, a dataclass, a tuple or a list of tensors, or one tensor'


class Entries(dict[str, Any]):
    """A dictionary of a batch as the loss function sees it: the error for a missing key lists the existing ones."""

    def __missing__(self, key: object) -> Any:
        present = ", ".join(repr(name) for name in self)
        raise trace_error(f"the loss asks for batch[{key!r}], but the batch has {present}", source.here())


@dataclass(frozen=True)
class Structure:
    """One level of nesting: the kind of its container, and the structure of each member; None for a tensor."""

    kind: type
    """The kind of the level: dict for every mapping, list, tuple, the class of a named tuple or of a dataclass, Tensor for a
    batch that is one tensor, or that of None.
    """
    members: tuple[tuple[str, Structure | None], ...]
    """The members by the key or the number of each, in order."""
    needs_dense: str = ""
    """The reason why each tensor must be dense; nothing if tensors may have any strides."""

    @staticmethod
    def plain(names: Iterable[str]) -> Structure:
        """A dictionary of tensors."""
        return Structure(dict, tuple((name, None) for name in names))

    @cached_property
    def is_plain(self) -> bool:
        """True if it is a dictionary of tensors: its names are its keys."""
        return self.kind is dict and all(inner is None for _, inner in self.members)

    @cached_property
    def order(self) -> Order:
        """The order of its keys, which a loss may read."""
        if self.is_plain:
            return tuple(key for key, _ in self.members)
        inner = tuple((key, None if one is None else one.order) for key, one in self.members)
        return inner if self.kind is dict or any(order for _, order in inner) else None

    def order_of(self, batch: Any, named: Mapping[str, Any]) -> Order:
        """The order of the keys in a batch of this structure, whose entries are `named`."""
        if self.is_plain:
            return tuple(named)
        if self.order is None:
            return None
        entries, inner = _members(batch) or {}, dict(self.members)
        return tuple(
            (
                key,
                None
                if (one := inner[key]) is None
                else one.order_of(entries[key], _members(entries[key]) or {}),
            )
            for key in entries
        )

    def in_order(self, order: Order) -> Structure:
        """The structure of a batch whose keys have another order."""
        if order is None or order == self.order:
            return self
        inner = dict(self.members)
        if self.is_plain:
            return replace(self, members=tuple((key, None) for key in order))
        members = tuple((key, one and one.in_order(each)) for key, each in order for one in [inner[key]])
        return replace(self, members=members)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The names of its tensors."""
        found = list[str]()
        for key, inner in self.members:
            found += [key] if inner is None else [f"{key}.{name}" for name in inner.leaves]
        return tuple(found)

    def rebuilt(self, tensors: Mapping[str, torch.Tensor], path: str = "") -> Any:
        """Return the batch of these tensors, by name."""
        if self.kind is torch.Tensor:
            return tensors[ALONE]
        if self.kind is NoneType:
            return None
        entries = {
            key: tensors[path + key] if inner is None else inner.rebuilt(tensors, f"{path}{key}.")
            for key, inner in self.members
        }
        return Entries(entries) if self.kind is dict else _made(self.kind, entries)

    def names(self, step: str, batch: object) -> Mapping[str, Any]:
        """Return the entries of a batch by name. Raises BindError, with the name of the step, for a batch of another
        nesting, or with other strides than the step computes with.
        """
        entries = self._names(step, batch)
        if self.needs_dense:
            for name, tensor in entries.items():
                if is_a(tensor, torch.Tensor) and not tensor.is_contiguous():
                    raise BindError(
                        f"{step}: batch entry {name!r} has the strides {tensor.stride()}, and {self.needs_dense}, which is"
                        f" compiled for dense batches: pass {name}.contiguous()"
                    )
        return entries

    def _names(self, step: str, batch: object) -> Mapping[str, Any]:
        if self.is_plain:
            if type(batch) is dict:
                return cast(Mapping[str, Any], batch)
            if is_a(batch, Mapping):
                return dict(members(batch) or ())
            raise BindError(f"{step}: a batch is a dict of tensors, got {type(batch).__name__}")
        if self.kind is torch.Tensor and is_a(batch, torch.Tensor):
            return {ALONE: batch}
        found = dict[str, Any]()
        self._collect(step, batch, "", found)
        return found

    def _collect(self, step: str, batch: object, path: str, found: dict[str, Any]) -> None:
        entries = {} if batch is None else _members(batch)
        if entries is None or _kind(batch) is not self.kind or entries.keys() != dict(self.members).keys():
            raise BindError(f"{step}: the batch{_at(path)} is {_described(batch)}, compiled for {self}")
        for key, inner in self.members:
            if inner is None:
                found[path + key] = entries[key]
            else:
                inner._collect(step, entries[key], f"{path}{key}.", found)

    def __str__(self) -> str:
        keys = [key for key, _ in self.members]
        if self.kind is torch.Tensor:
            return "one tensor"
        if self.kind is NoneType:
            return "None"
        return f"a dict with {keys}" if self.kind is dict else f"a {self.kind.__name__} of {len(keys)}"


def named(batch: object, path: str = "", depth: int = 0) -> tuple[dict[str, Any], Structure]:
    """Return the entries of an example batch by name, and its structure. Raises TraceError for an invalid batch."""
    if depth == DEEPEST:
        raise trace_error(f"the batch is nested more than {DEEPEST} levels deep{_at(path)}")
    if not depth and is_a(batch, torch.Tensor):
        return {ALONE: batch}, Structure(torch.Tensor, ((ALONE, None),))
    if (entries := _members(batch)) is None:
        raise trace_error(f"the batch must be {EXPECTED}, got {type(batch).__name__}")
    found, members = dict[str, Any](), list[tuple[str, Structure | None]]()
    for key, entry in entries.items():
        expect_name("batch entries", "batch entry", key)
        inner, structure = {path + key: entry}, None
        if entry is None:
            inner, structure = {}, Structure(NoneType, ())
        elif _members(entry) is not None:
            inner, structure = named(entry, f"{path}{key}.", depth + 1)
        if twice := sorted(inner.keys() & found.keys()):
            raise trace_error(
                f"two entries of the batch would be called {twice[0]!r}; rename one of the keys"
            )
        found |= inner
        members.append((key, structure))
    return found, Structure(_kind(batch), tuple(members))


def several(given: Batch | Sequence[Batch] | None) -> list[Batch]:
    """Return the batches in an argument that is one batch or several: a list or a tuple is several if no member is a
    tensor.
    """
    if given is None:
        return []
    if is_a(given, (list, tuple)) and not _is_named(type(given)):
        parts = [part for _, part in members(given) or ()]
        if not any(is_a(part, torch.Tensor) for part in parts):
            return parts
    return [cast(Batch, given)]


def mapped(function: Callable[[Any], Any], batch: Any, depth: int = 0) -> Any:
    """Return the batch with each entry that is no container replaced by `function` of it."""
    entries = _members(batch)
    if entries is None or depth == DEEPEST:
        return function(batch)
    return _made(_kind(batch), {key: mapped(function, entry, depth + 1) for key, entry in entries.items()})


def shapes_of(batch: Any) -> Any:
    """Return a batch's current form for later traces, without the memory of its tensors; values that no step can hold
    stay unchanged.
    """
    return mapped(_shape_of, batch)


def _shape_of(value: Any) -> Any:
    if not is_a(value, torch.Tensor) or special(value) is not None:
        return value
    return value.detach().new_empty(()).expand(value.shape)


def expect_one(structures: Sequence[Structure]) -> None:
    """Raise BindError if the example batches of several shape groups are nested differently."""
    for number, structure in enumerate(structures):
        if _shape(structure) != _shape(structures[0]):
            raise BindError(
                f"example {number} is {structure}, example 0 is {structures[0]}; all must be nested in the same way"
            )


def _shape(structure: Structure | None) -> object:
    """Return a key that is equal for batches that differ in the order of their keys only."""
    if structure is None:
        return None
    return structure.kind, frozenset((key, _shape(inner)) for key, inner in structure.members)


def _members(batch: object) -> dict[str, Any] | None:
    """Return the content of a container of a batch, by key or number; None for anything else."""
    if (held := members(batch)) is None:
        return _fields(batch)
    return {str(key): member for key, member in held} if is_a(batch, (list, tuple)) else dict(held)


def _fields(batch: object) -> dict[str, Any] | None:
    """Return what an instance of a dataclass has in its fields, without a call of its methods; None for anything else."""
    if (names := _field_names(type(batch))) is None:
        return None
    own = attributes(batch) or {}
    held = {name: own[name] if name in own else held_elsewhere(batch, name) for name in names}
    return {name: value for name, value in held.items() if value is not MISSING}


def _field_names(kind: type) -> list[str] | None:
    """Return the names of a dataclass's fields; None for another class, and for one of tensors or modules."""
    fields = next((vars(base)[FIELDS] for base in kind.__mro__ if FIELDS in vars(base)), None)
    if fields is None or issubclass(kind, (torch.Tensor, torch.nn.Module)):
        return None
    return [name for name, each in fields.items() if repr(each._field_type) == "_FIELD"]


def _kind(batch: object) -> type:
    own: type = type(batch)
    if is_a(batch, tuple):
        return own if _is_named(own) else tuple
    if is_a(batch, list):
        return list
    return dict if is_a(batch, Mapping) else own


def _made(kind: type, members: dict[str, Any]) -> Any:
    if kind is dict:
        return members
    if _field_names(kind) is not None:  # neither __init__, which may do more, nor what a frozen one refuses
        made = cast(Any, object.__new__(kind))
        for name, member in members.items():
            object.__setattr__(made, name, member)
        return made
    return kind(*members.values()) if _is_named(kind) else kind(members.values())


def _is_named(kind: type) -> bool:
    return tuple in kind.__mro__ and hasattr(kind, "_fields")


def _at(path: str) -> str:
    return f" at {path.rstrip('.')!r}" if path else ""


def _described(batch: object) -> str:
    entries = _members(batch)
    if entries is None:
        return f"a {type(batch).__name__}"
    return str(Structure(_kind(batch), tuple((key, None) for key in entries)))
