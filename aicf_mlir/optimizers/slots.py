"""The slots of an optimizer: its data on the device in addition to the parameters, and the name of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

STEP = "step"
"""The counters of a param group, and torch's name of a parameter's."""

RATES = ("params", "lr", "initial_lr")
"""Entries of a group that belong to the user and the schedulers."""

_OF_GROUP = "group."


def group_state(key: str) -> str:
    """Return the name of the state that is the number `key` of a param group; the group's first parameter owns it."""
    return f"{_OF_GROUP}{key}"


def group_key(name: str) -> str | None:
    """Return the key in the param group of a state; None for a state of a parameter."""
    return name.removeprefix(_OF_GROUP) if name.startswith(_OF_GROUP) else None


@dataclass(frozen=True)
class OptimizerSlot:
    """One hyperparameter, pin, correction, vector of counters or state."""

    group: int
    name: str
    """The name of the hyperparameter, or torch's name of the state."""
    owner: str | None = None
    """The parameter that a state belongs to; None for a slot of the whole group."""
    counts: bool = field(default=False, compare=False)
    """True if it is a vector with a number of each parameter's state."""

    @property
    def role(self) -> Literal["host_scalar", "state"]:
        """The role of the argument."""
        return "state" if self.owner is not None or self.counts or self.name == STEP else "host_scalar"

    @property
    def slot(self) -> str:
        """The name of the argument: for a state it follows its parameter's; else plain for group 0, `name.k` for group k."""
        if self.owner is not None:
            return f"{self.owner}.{self.name}"
        return self.name if self.group == 0 else f"{self.name}.{self.group}"

    @property
    def key(self) -> tuple[str, str]:
        """Role and name, which are an argument's identity."""
        return self.role, self.slot


def plain_name(slot: str) -> str:
    """The name of a hyperparameter without its group, for tools that have a text and no param groups: `lr` of `lr.1`."""
    return slot.split(".")[0]
