"""The numbers of a param group, the names of their slots, and the entries that they make up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from aicf_mlir.frontend.source import trace_error
from aicf_mlir.optimizers.group_values import real
from aicf_mlir.optimizers.slots import OptimizerSlot

Counted = dict[tuple[int, str], type[int | float]]

COUNTED: WeakKeyDictionary[torch.optim.Optimizer, Counted] = WeakKeyDictionary()
"""The numbers that the step of a compiled optimizer changes in its groups, by place and key, with their Python types. The
groups hold tensors there.
"""


def is_number(value: object) -> bool:
    """True if it is a number that a step takes from the host."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def sequence(value: Any) -> list[Any]:
    """Return the members of a tuple or a list; none of anything else."""
    return list(value) if isinstance(value, (tuple, list)) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@dataclass(frozen=True)
class GroupSettings:
    """The numbers of one param group."""

    place: int
    """The index among the groups of its optimizer."""
    index: int
    """The index among the groups of the step, which may have several optimizers: it marks the slots."""
    group: Mapping[str, Any]
    """The user's own group."""
    counted: Mapping[str, type[int | float]] = field(default_factory=dict[str, "type[int | float]"])
    """The entries that may hold a tensor of a compiled step in place of a number."""

    passed_over: frozenset[int] = frozenset()
    """The places of the parameters without a gradient."""

    @property
    def content(self) -> dict[str, Any]:
        """Return the entries as the optimizer itself would hold them."""
        return {
            key: self.counted[key](value.item())
            if key in self.counted and isinstance(value, torch.Tensor)
            else value
            for key, value in self.group.items()
        }

    @property
    def members(self) -> dict[str, tuple[str, ...]]:
        """Return the hyperparameters of each entry; "" for a member that is no number."""
        found: dict[str, tuple[str, ...]] = {}
        for key, value in self.content.items():
            if key == "params":
                continue
            parts = sequence(value)
            if is_number(value):
                found[key] = (key,)
            elif any(map(is_number, parts)):
                stem = "beta" if key == "betas" else f"{key}_"
                found[key] = tuple(
                    f"{stem}{i + 1}" if is_number(each) else "" for i, each in enumerate(parts)
                )
        return found

    @property
    def skeleton(self) -> dict[str, tuple[Any, ...]]:
        """Return the members of each entry with numbers; "" replaces each number."""
        return {
            key: tuple(
                "" if name else part
                for name, part in zip(names, sequence(self.group[key]) or [0], strict=True)
            )
            for key, names in self.members.items()
        }

    @property
    def slots(self) -> list[str]:
        """Return the names of the host scalars, all different among the groups."""
        return [self.slot(name) for names in self.members.values() for name in names if name]

    def slot(self, name: str) -> str:
        """Return the name of the slot of a hyperparameter."""
        return OptimizerSlot(self.index, name).slot

    @property
    def values(self) -> dict[str, float]:
        """Return the current value of each slot. Raises BindError for nan."""
        numbers: dict[str, float] = {}
        content = self.content
        for key, names in self.members.items():
            entry = content[key]
            for name, value in zip(names, sequence(entry) or [entry], strict=True):
                if name:
                    real(value, f"the optimizer's {key}")
                    numbers[self.slot(name)] = value
        return numbers

    def entries(self, live: Mapping[str, Any]) -> dict[str, Any]:
        """Return the group with its numbers replaced by the numbers of `live`. Raises TraceError for a tensor."""
        made = self.content
        for key, value in made.items():
            if isinstance(value, torch.Tensor):
                raise trace_error(
                    f"param group {self.place} has the tensor {key!r}, which a traced optimizer does not follow; use a number"
                )
        for key, names in self.members.items():
            if not (parts := sequence(self.group[key])):
                made[key] = live[self.slot(key)]
                continue
            now = [live[self.slot(name)] if name else each for name, each in zip(names, parts, strict=True)]
            made[key] = self.group[key].__class__(now)
        return made


def settings_of(optimizer: torch.optim.Optimizer, first_group: int) -> list[GroupSettings]:
    """Return the settings of an optimizer whose first group has number `first_group` in the step."""
    counted = COUNTED.get(optimizer, {})
    return [
        GroupSettings(
            k, first_group + k, group, {key: kind for (place, key), kind in counted.items() if place == k}
        )
        for k, group in enumerate(optimizer.param_groups)
    ]
