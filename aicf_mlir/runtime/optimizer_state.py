"""The optimizer's per-parameter state: it lives in the state arena, and `opt.state` holds torch tensors that are views of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.errors import BindError


@dataclass(frozen=True)
class BoundGroup:
    """The trained parameters of one param group, in the order of their `step` slot, and the views of their state."""

    index: int
    parameters: list[tuple[str, torch.nn.Parameter]]
    states: list[dict[str, torch.Tensor]]
    """Per parameter: torch's state key → view of the arena."""
    steps: torch.Tensor | None
    """The step counter of each parameter, shape [parameters], f32; None for SGD without momentum."""
    counts_in_state: bool
    """Whether torch keeps the step in the per-parameter state (Adam), or not at all (SGD)."""


class OptimizerState:
    """Keeps `optimizer.state` and the state arena one thing.

    As in torch, `optimizer.state` is empty until the first step. State that is already there (a resumed run,
    `load_state_dict`, a tensor put there by hand) is copied into the arena and replaced by its view.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, groups: list[BoundGroup], on_adopt: Callable[[], None]
    ):
        self._optimizer = optimizer
        self._on_adopt = on_adopt
        self._groups = groups
        self._watched: list[tuple[dict[str, Any], str, torch.Tensor]] = []
        self._started: list[list[bool]] = [[False] * len(group.parameters) for group in groups]
        self.published = False
        self.adopt()
        self._hook = optimizer.register_load_state_dict_post_hook(lambda _: self.adopt())

    def close(self) -> None:
        """Stop following `load_state_dict`."""
        self._hook.remove()

    def adopt(self) -> None:
        """Take what `optimizer.state` holds: copy it into the arena and leave views in its place; clear what it lacks."""
        started = [self._adopt_group(group) for group in self._groups]
        self._publish(started)
        self.published = all(all(group) for group in started)
        if not self.published:
            self._started = started
        self._on_adopt()

    def _adopt_group(self, group: BoundGroup) -> list[bool]:
        """Copy the state of one group; which of its parameters have any, and are past their first step."""
        counts: list[float] = []
        present: list[bool] = []
        for (name, parameter), views in zip(group.parameters, group.states, strict=True):
            saved: dict[str, Any] = self._optimizer.state.get(parameter, {})
            found = False
            for key, target in views.items():
                value = saved.get(key)
                found |= value is not None
                if value is None:
                    target.zero_()
                elif value is not target:
                    _check_same(name, key, value, target)
                    target.copy_(value)
            counts.append(float(saved["step"]) if "step" in saved else float(found))
            present.append(found or "step" in saved)
        if group.steps is None:
            return [bool(self._optimizer.state.get(parameter)) for _, parameter in group.parameters]
        group.steps.copy_(group.steps.new_tensor(counts))
        return present

    def publish(self) -> None:
        """Put views of the arena into `optimizer.state`, as torch does on the first step."""
        self._publish([[True] * len(group.parameters) for group in self._groups])
        self.published = True

    def _publish(self, started: list[list[bool]]) -> None:
        """Put views for the parameters that have `started`: torch takes state that is there for that of a later step."""
        self._watched = []
        for group, flags in zip(self._groups, started, strict=True):
            for i, ((_, parameter), views) in enumerate(zip(group.parameters, group.states, strict=True)):
                if not flags[i] or not (views or group.counts_in_state):
                    continue
                state = self._optimizer.state[parameter]
                entries = dict(views)
                if group.counts_in_state and group.steps is not None:
                    entries = {"step": group.steps[i], **entries}
                state.update(entries)
                self._watched += [(state, key, value) for key, value in entries.items()]

    def retract(self) -> None:
        """Bring `optimizer.state` back to what it held before the first step: nothing, or what was loaded until then."""
        for group in self._groups:
            for _, parameter in group.parameters:
                self._optimizer.state.pop(parameter, None)
        self._publish(self._started)
        self.published = False

    def refresh(self) -> None:
        """Adopt state that torch or the user put there since the last step; cheap when there is none."""
        if not self.published and self._optimizer.state:
            self.adopt()
        for state, key, value in self._watched:
            if state.get(key) is not value:
                self.adopt()
                return


def _check_same(name: str, key: str, value: Any, target: torch.Tensor) -> None:
    if not isinstance(value, torch.Tensor) or value.shape != target.shape:
        got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise BindError(
            f"optimizer state {key!r} of parameter {name!r}: expected a tensor of shape {tuple(target.shape)}, got {got}"
        )
