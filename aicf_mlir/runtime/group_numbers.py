"""Numbers that an optimizer's step changes in its param groups: states whose views the groups hold while the step lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.optimizers.slots import group_key


class GroupNumbers:
    """The numbers of one param group of `optimizer`, the one at `place`, by the names of their states."""

    def __init__(self, optimizer: torch.optim.Optimizer, place: int, names: Mapping[str, Any]):
        """Of `names`, only states of groups count."""
        self._optimizer = optimizer
        self.place = place
        self.keys: dict[str, str] = {name: key for name in names if (key := group_key(name)) is not None}
        """The key in the group, by the name of the state."""

    @property
    def group(self) -> dict[str, Any]:
        """The param group of now: `load_state_dict` makes another."""
        return self._optimizer.param_groups[self.place]

    def entries(self) -> dict[str, Any]:
        """Return what the group holds, by the names of the states."""
        group = self.group
        return {name: group[key] for name, key in self.keys.items() if key in group}

    def check(self) -> None:
        """Raise BindError for a number that is missing, or is none.

        A step makes its numbers together with the state of the parameters, and its code may look at either to begin.
        """
        group, state = self.group, self._optimizer.state
        trained = [parameter for parameter in group["params"] if state.get(parameter)]
        for key in self.keys.values():
            if key not in group:
                if key in self._optimizer.defaults:
                    raise BindError(f"param group {self.place} has no {key!r} any more; put it back")
                if trained:
                    raise BindError(
                        f"param group {self.place} has no {key!r}, and its parameters have state; load a state_dict with both, or"
                        " remove the state too"
                    )
                continue
            value = group[key]
            if not (
                isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1)
            ):
                raise BindError(f"param group {self.place}: expected a number in {key!r}, got {value!r:.60}")

    def begun(self) -> bool:
        """True if the group has the numbers that the first step makes."""
        made = [key for key in self.keys.values() if key not in self._optimizer.defaults]
        return bool(made) and all(key in self.group for key in made)

    def put(self, views: Mapping[str, torch.Tensor]) -> None:
        """Put the views into the group."""
        self.group.update({key: views[name] for name, key in self.keys.items() if name in views})

    def remove(self) -> None:
        """Remove the numbers that the first step makes."""
        for key in self.keys.values():
            if key not in self._optimizer.defaults:
                self.group.pop(key, None)

    def as_numbers(self, group: dict[str, Any], kinds: Mapping[str, type[int | float]]) -> None:
        """Put Python numbers in the place of the views, in `group` or a copy of it."""
        for name, key in self.keys.items():
            if isinstance(value := group.get(key), torch.Tensor):
                group[key] = kinds.get(name, float)(value.item())
