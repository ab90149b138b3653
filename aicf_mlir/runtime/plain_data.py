"""Values of param groups as JSON and back, exactly: numbers, strings, tuples, lists, dictionaries, tensors.

JSON has neither tuples nor tensors nor infinities; they are written as a dictionary with one key that names the kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from typing import Any, cast

import torch

TUPLE, FLOAT, TENSOR, ITEMS, PAIRS = "tuple", "float", "tensor", "items", "pairs"

MOST_DEPTH = 32
"""The most levels of containers in containers: far more than a param group or a scheduler has."""

Keep = Callable[[torch.Tensor], str]
"""A function that stores a tensor and returns the name to find it by."""


def encode(value: object, keep: Keep) -> object:
    """Return `value` as JSON data. Raises TypeError for anything but plain data."""
    if isinstance(value, torch.Tensor):
        return {TENSOR: keep(value)}
    if isinstance(value, tuple):
        return {TUPLE: [encode(item, keep) for item in cast(tuple[object, ...], value)]}
    if isinstance(value, list):
        return [encode(item, keep) for item in cast(list[object], value)]
    if isinstance(value, dict):
        items = cast(dict[object, object], value).items()
        if items and all(type(key) is int for key, _ in items):
            return {PAIRS: [[key, encode(item, keep)] for key, item in items]}
        return {ITEMS: {_key(key): encode(item, keep) for key, item in items}}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {FLOAT: str(float(value))}
    if isinstance(value, int) and not _is_word(value):
        raise TypeError(f"{value} is no integer of 64 bits")
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} is no plain data")


def decode(value: object, tensors: MutableMapping[str, torch.Tensor], depth: int = 0) -> Any:
    """Return the value that `encode` was given; each of `tensors` that it holds is taken out, and none is found twice.

    Raises KeyError, TypeError, AttributeError or ValueError for JSON that `encode` did not write.
    """
    if depth > MOST_DEPTH:
        raise ValueError(f"values that are nested more than {MOST_DEPTH} deep")
    if isinstance(value, list):
        return [decode(item, tensors, depth + 1) for item in cast(list[object], value)]
    if not isinstance(value, dict):
        if isinstance(value, int) and not _is_word(value):
            raise ValueError("an integer of more than 64 bits")
        return value
    ((tag, inner),) = cast(dict[str, Any], value).items()
    match tag:
        case "tensor":
            return tensors.pop(inner)
        case "tuple" if isinstance(inner, list):
            return tuple(decode(item, tensors, depth + 1) for item in cast(list[object], inner))
        case "float" if inner in ("inf", "-inf", "nan"):
            return float(inner)
        case "pairs" if isinstance(inner, list):
            pairs = [(key, decode(item, tensors, depth + 1)) for key, item in cast(list[Any], inner)]
            if any(type(key) is not int for key, _ in pairs) or len(dict(pairs)) < len(pairs):
                raise ValueError("keys that are not whole numbers, each of them once")
            return dict(pairs)
        case "items":
            return {key: decode(item, tensors, depth + 1) for key, item in inner.items()}
        case _:
            raise ValueError(f"{tag!r} is no kind of value")


def _is_word(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is neither a string nor, as all keys beside it, an integer")
    return key


def same_structure(one: object, other: object) -> bool:
    """True if two values differ in their numbers only: a number may be a tensor of one element, a flag must be equal."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if _is_number(one) and _is_number(other):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (one.dtype, one.shape) == (other.dtype, other.shape)
    if isinstance(one, tuple | list):
        items, others = list(cast(list[object], one)), list(cast(list[object], other))
        return len(items) == len(others) and all(map(same_structure, items, others))
    if isinstance(one, dict):
        left, right = cast(dict[str, object], one), cast(dict[str, object], other)
        return left.keys() == right.keys() and all(same_structure(left[key], right[key]) for key in left)
    return one == other


def _is_number(value: object) -> bool:
    return (isinstance(value, torch.Tensor) and value.numel() == 1) or isinstance(value, int | float)
