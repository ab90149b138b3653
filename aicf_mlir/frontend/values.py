"""The user's values, inspected by Python's own methods: no method of the user's classes runs."""

from __future__ import annotations

import enum
import struct
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Kind = TypeVar("Kind")

DICT: Any = dict
LIST: Any = list
TUPLE: Any = tuple
SET: Any = set
DEQUE: Any = deque
"""The type by which Python's own methods are called, bypassing the methods of user subclasses."""

PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size))
"""Exact types of values without hidden state: they compare by Python's own methods, or torch's."""

CODE = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(types.CodeType, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType),
)

MOST_SHOWN = 60
"""The most letters of a value in a message."""


def is_a(value: object, kind: type[Kind] | tuple[type[Kind], ...]) -> TypeIs[Kind]:
    """Test like `isinstance`, but by the actual type of a value: `isinstance` also reads the object's `__class__`."""
    return issubclass(type(value), kind)


def is_plain(value: object) -> bool:
    """True if it is a number, a text or the like, of Python's, torch's or NumPy's own type."""
    return type(value) in PLAIN or is_numpys(value)


def is_numpys(value: object) -> bool:
    """True if it is a number of NumPy's."""
    return is_a(value, np.generic) and type(value).__module__ == "numpy"


def is_constant(value: object) -> bool:
    """True if it is plain or a member of an enumeration: only the place that holds it needs to be watched."""
    return is_plain(value) or is_a(value, enum.Enum)


def same(a: Any, b: Any, inside: Collection[type] = (tuple,), depth: int = 20) -> bool:
    """True if two values are one object, or plain and equal to the last bit, or containers of values that are.

    `inside`: the exact types of lists and tuples that are compared by their members. With weakref.ref any two references are
    the same: an LSTM keeps some to tensors of its tracer.
    """
    if a is b:
        return True
    kind = cast("type[Any]", type(a))
    if kind is not type(b) or not depth:
        return False
    if kind in inside:
        return kind is weakref.ref or (
            len(a) == len(b) and all(same(x, y, inside, depth - 1) for x, y in zip(a, b, strict=True))
        )
    if kind is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if kind is set:  # in the form that `Read.value` returns
        return frozenset(map(_identity, a)) == frozenset(map(_identity, b))
    if is_numpys(a):
        return bool(a.dtype == b.dtype) and a.tobytes() == b.tobytes()
    return kind in PLAIN and bool(a == b)


def _identity(value: Any) -> object:
    """Return a key that is equal for two members of sets that are the same."""
    if type(value) is float:
        return float, value.hex()
    return (type(value).__name__, value) if type(value) in PLAIN else id(value)


def alike(a: Any, b: Any) -> bool:
    """True if two values are the same, or of one kind with parts that are alike: only `is` tells them apart."""
    pending, seen = [(a, b)], dict[tuple[int, int], Any]()
    while pending:
        one, other = pending.pop()
        if same(one, other) or (id(one), id(other)) in seen:
            continue
        inside = [_parts(each) for each in (one, other)] if type(one) is type(other) else [None]
        seen[id(one), id(other)] = inside  # an object that is alive keeps its id
        if None in inside or len(seen) > MOST_ALIKE or len({len(each or ()) for each in inside}) > 1:
            return False
        pending += zip(*cast("list[list[Any]]", inside), strict=True)
    return True


MOST_ALIKE = 10_000
"""The most objects that are compared; a larger structure is not state that a call makes again."""


def _parts(value: Any) -> list[Any] | None:
    """Return all parts of a value; None for one with state that cannot be inspected."""
    kind = cast("type[Any]", type(value))
    if kind is types.FunctionType:
        return [value.__code__, value.__defaults__, value.__kwdefaults__, value.__closure__, vars(value)]
    if kind is types.MethodType:
        return [value.__func__, value.__self__]
    if kind is types.CellType:
        return [_of(vars(kind)["cell_contents"], value)]
    basic = next(base for base in kind.__mro__ if not base.__flags__ & HEAP)
    if basic not in (object, dict, list, tuple):
        return None
    own = [each for base in kind.__mro__ for each in vars(base).values()]
    slots = [_of(each, value) for each in own if type(each) is types.MemberDescriptorType]
    return [*(part for pair in members(value) or () for part in pair), attributes(value), *slots]


HEAP = 1 << 9
"""The class flag of types that Python code has made."""


def _of(descriptor: Any, value: Any) -> Any:
    """Return the value that a C descriptor finds; None for nothing."""
    try:
        return descriptor.__get__(value)
    except (AttributeError, ValueError):
        return None


def attributes(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object, bypassing any `__dict__` that its class defines; None if it has none."""
    for kind in type(value).__mro__:
        own = vars(kind).get("__dict__")
        if type(own) is types.GetSetDescriptorType:
            return own.__get__(value)
    return None


def held_elsewhere(owner: Any, name: str) -> Any:
    """Return what an object has by a name that is not in its dictionary: in a slot, or as a constant of its class; MISSING if
    nothing.
    """
    for kind in type(owner).__mro__:
        if (own := vars(kind).get(name, MISSING)) is not MISSING:
            if type(own) is not types.MemberDescriptorType:
                return own
            try:
                return own.__get__(owner)
            except AttributeError:
                return MISSING
    return MISSING


def slot(owner: Any, name: str) -> Any:
    """Return the descriptor of a slot of an object, by its class."""
    bases: tuple[type, ...] = type(owner).__mro__
    return next(vars(kind)[name] for kind in bases if name in vars(kind))


def items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the entries of a dictionary, in order; an ordered one keeps an order of its own."""
    kind: Any = OrderedDict if is_a(value, OrderedDict) else dict
    return iter(kind.items(value))


def members(value: Any) -> Iterator[tuple[Any, Any]] | None:
    """Yield the content of a dictionary, list or tuple by key or number, or of another mapping by its own methods; None
    for anything else.
    """
    kind = cast("type[Any]", type(value))
    if issubclass(kind, dict):
        return items(value)
    if issubclass(kind, (list, tuple)):
        return enumerate((LIST if issubclass(kind, list) else TUPLE).__iter__(value))
    if kind in PLAIN:
        return None
    return iter(cast("Mapping[Any, Any]", value).items()) if is_a(value, Mapping) else None


def tokens(values: Collection[Any]) -> tuple[str, ...] | None:
    """Return the texts that distinguish constants from others of their kind; None if a value is no constant."""
    if not all(map(is_constant, values)):
        return None
    return tuple(repr(each) if is_plain(each) else f"{type(each).__name__} {id(each)}" for each in values)


def shown(value: Any) -> str:
    """Return a value in at most sixty letters."""
    text = _text(value, 4)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def _text(value: Any, depth: int) -> str:
    kind = cast("type[Any]", type(value))
    if is_plain(value):
        return repr(value)
    if is_a(value, torch.nn.Module):
        return kind.__name__
    if is_a(value, enum.Enum):
        return f"{kind.__name__}.{(attributes(value) or {}).get('_name_')}"
    if is_a(value, type):
        return type.__repr__(value)
    if kind in CODE or kind.__module__.rpartition(".")[0] == __name__.rpartition(".")[0]:
        return repr(value)
    if depth and (text := _members(value, depth - 1)) is not None:
        return text
    return f"{'an' if kind.__name__[:1] in 'AEIOUaeiou' else 'a'} {kind.__name__}"


def _members(value: Any, depth: int) -> str | None:
    """Return a Python container with its first members."""
    if issubclass(type(value), dict):
        entries = [f"{_text(k, depth)}: {_text(v, depth)}" for k, v in _first(items(value))]
        return f"{{{', '.join(entries)}}}"
    for kind, begin, end, each in BRACKETS:
        if is_a(value, kind):
            texts = [_text(v, depth) for v in _first(each(value))]
            single = "," if kind is tuple and len(texts) == 1 else ""
            return f"{begin}{', '.join(texts)}{single}{end}"
    return None


BRACKETS: tuple[tuple[type, str, str, Callable[[Any], Any]], ...] = (
    (list, "[", "]", LIST.__iter__),
    (tuple, "(", ")", TUPLE.__iter__),
    (set, "{", "}", SET.__iter__),
    (deque, "deque([", "])", DEQUE.__iter__),
)


def _first(members: Any) -> list[Any]:
    """Return no more members than a message shows."""
    return [each for each, _ in zip(members, range(MOST_SHOWN), strict=False)]
