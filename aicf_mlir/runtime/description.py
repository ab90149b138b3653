"""The schema of the description in a checkpoint: the allowed form of each entry, checked before any entry is used.

A digest proves that a file is unchanged since it was written, but not its author. So every entry has its row here, and
an entry that does not match its row is refused before the step changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

Check = Callable[[object], bool]


def is_number(value: object) -> bool:
    """True if a value of JSON is a number; a flag is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """True if a value is a finite number, or a tensor of one element that holds one."""
    if isinstance(value, torch.Tensor):
        return value.numel() == 1 and value.dtype is not torch.bool and is_finite(value.item())
    return is_number(value) and math.isfinite(cast(float, value))


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, cast(list[object], value)))


def _is_name(value: object) -> bool:
    return isinstance(value, str)


def _are_names(value: object) -> bool:
    return _list_of(_is_name)(value) and len(set(cast(list[str], value))) == len(cast(list[str], value))


def _are_encoded(value: object) -> bool:
    """True if they are numbers by name as `encode` writes them: a number that is not finite is a dictionary."""
    return isinstance(value, dict) and all(
        is_number(item) or isinstance(item, dict) for item in cast(dict[str, object], value).values()
    )


@dataclass(frozen=True)
class DescriptionEntry:
    """One row: the entry's name for messages, and a test of its value."""

    expected: str
    fits: Check
    is_optional: bool = False
    """True if a file may omit the entry when it is empty: then it is an empty list."""


ENTRIES: Mapping[str, DescriptionEntry] = {
    "groups": DescriptionEntry("a list of dictionaries", _list_of(lambda value: isinstance(value, dict))),
    "settings": DescriptionEntry("data of param groups", lambda value: isinstance(value, list | dict)),
    "initial_lr": DescriptionEntry(
        "a list, with a rate or null for each param group", lambda v: isinstance(v, list)
    ),
    "further": DescriptionEntry("a list of dictionaries of numbers", _list_of(_are_encoded), True),
    "host_values": DescriptionEntry("numbers by name", _are_encoded),
    "published": DescriptionEntry("a list of names, each of them once", _are_names),
    "schedulers": DescriptionEntry("a list of states", _list_of(lambda value: isinstance(value, dict)), True),
    "scheduler_classes": DescriptionEntry("a list of names", _list_of(_is_name), True),
}


def checked(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description with all its entries. Raises ValueError that names the first entry that does not match its
    row.
    """
    for key in description.keys() - ENTRIES.keys():
        raise ValueError(f"its description has an entry {key!r}; those are {', '.join(ENTRIES)}")
    whole: dict[str, Any] = {}
    for key, row in ENTRIES.items():
        if key not in description and not row.is_optional:
            raise ValueError(f"its description has no entry {key!r}")
        whole[key] = description.get(key, [])
        if not row.fits(whole[key]):
            raise ValueError(f"the entry {key!r} of its description is not {row.expected}")
    return whole


def expect_rates(settings: list[Any], initial: list[Any]) -> None:
    """Raise ValueError for a learning rate that is not finite, or a first one, which torch takes from a constructor,
    below zero.
    """
    for group in settings:
        if isinstance(group, dict) and "lr" in group and not is_finite(cast(object, group["lr"])):
            raise ValueError(f"the lr {group['lr']}, expected a finite number")
    for value in initial:
        if value is not None and not (is_finite(value) and float(value) >= 0):
            raise ValueError(f"the initial_lr {value!r}, expected a finite number that is not below zero")


def expect_numbers(values: Mapping[str, object]) -> None:
    """Raise ValueError for an invalid number of the user's."""
    for name, value in values.items():
        number = value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
        if not is_number(number) or math.isnan(cast(float, number)):
            raise ValueError(f"the value {name!r} is {value!r}, expected a number")
