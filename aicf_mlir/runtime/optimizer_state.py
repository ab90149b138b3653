"""The optimizer's per-parameter state: the state arena holds it, and the tensors of `opt.state` are views of the arena.

`reconcile` restores this after any change that the user or torch made to `opt.state`. A parameter without entries
begins again, one that lacks some of them is refused, and a foreign tensor is copied in and replaced by the view. As in
torch, `opt.state` is empty until the first step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from aicf_mlir import _C
from aicf_mlir.errors import BindError, StateError
from aicf_mlir.frontend.types import as_users, in_real
from aicf_mlir.host.interrupts import held
from aicf_mlir.optimizers.slots import STEP, OptimizerSlot
from aicf_mlir.runtime.group_numbers import GroupNumbers
from aicf_mlir.runtime.release import lies_in
from aicf_mlir.runtime.state_checks import check_complete, check_count, check_numbers, check_same
from aicf_mlir.runtime.store import Store, place
from aicf_mlir.runtime.tensors import exact, set_to
from aicf_mlir.runtime.watched import Watched

Views = dict[str, torch.Tensor]
"""The view of the arena by torch's state key."""

Beginning = Callable[[str], float | torch.Tensor]
"""The beginning of a state: one number for all elements, or the whole tensor."""

_views: weakref.WeakKeyDictionary[torch.optim.Optimizer, Any] = weakref.WeakKeyDictionary()
"""The state of every optimizer that a compiled step trains with: its steps share it."""


def shared_views(optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> Views:
    """Return the views of one parameter's state, for all compiled steps of `optimizer`; empty at first."""
    by_parameter = _views.setdefault(
        optimizer, WeakIdKeyDictionary()
    )  # tensors compare element by element, so compare by identity
    views: Views = by_parameter.setdefault(parameter, {})
    return views


@dataclass(frozen=True)
class BoundParameter:
    """A trained parameter and its state."""

    name: str
    parameter: torch.nn.Parameter
    slots: Mapping[str, OptimizerSlot]
    """The states of the parameter without the counter, by torch's keys; and those of its group that it owns."""
    group: GroupNumbers
    """The states that its group holds."""
    views: Views
    """The views, shared with the other steps of the optimizer."""
    count: torch.Tensor | None
    """The number of steps taken, 0-d f32, a view of this step's counters; None for SGD without momentum."""
    vectors: Views
    """Further numbers of its state, in the form of `count`."""
    beginning: Beginning
    """The content of a state before the first step, by its key."""
    needed: Collection[str]
    """The states that only the optimizer can begin, by a step of its own."""
    numbers: Mapping[str, type[int | float]]
    """The states that the optimizer itself keeps as Python numbers."""

    @property
    def own(self) -> list[str]:
        """The keys of the states that `opt.state` holds."""
        return [key for key in self.slots if key not in self.group.keys]


@dataclass(frozen=True)
class BoundGroup:
    """The trained parameters of one param group, in the order of their counters."""

    parameters: list[BoundParameter]
    counts_in_state: bool
    """True if torch keeps the step in the per-parameter state (Adam); False if it keeps none (SGD)."""


class OptimizerState:
    """The state of the parameters that one compiled step trains."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        groups: list[BoundGroup],
        store: Store,
        on_adopt: weakref.WeakMethod[Callable[[], None]],
    ):
        self._optimizer = optimizer
        self._store = store
        self._on_adopt = on_adopt
        self._bound = [
            (bound, group.counts_in_state)
            for group in groups
            for bound in group.parameters
            if bound.slots or bound.count is not None
        ]
        for bound, _ in self._bound:
            for key in bound.slots:
                bound.views.setdefault(key, self._fresh(bound, key))
        self.watched = Watched()
        self.published = False
        """True if `optimizer.state` has an entry for every trained parameter."""
        self.reconcile()
        follow = weakref.WeakMethod(self.refresh)  # torch's hooks must not keep this step alive
        hook = optimizer.register_load_state_dict_post_hook(lambda _: (call := follow()) and call())
        self._unhook = weakref.finalize(self, hook.remove)
        saved = weakref.WeakMethod(self._with_numbers)
        written = optimizer.register_state_dict_post_hook(lambda _, state: (call := saved()) and call(state))
        self._unhook_written = weakref.finalize(self, written.remove)

    def close(self, arenas: Collection[_C.Arena]) -> None:
        """Stop following `load_state_dict`, and forget the views of `arenas`: states that were numbers become numbers
        again.
        """
        self._unhook()
        self._unhook_written()
        for bound, _ in self._bound:
            self._put_numbers(bound, self._optimizer.state.get(bound.parameter))
            if bound.group.keys:
                bound.group.as_numbers(bound.group.group, bound.numbers)
        for bound, _ in self._bound:
            for key, view in list(bound.views.items()):
                if lies_in(view, arenas):
                    del bound.views[key]

    def _fresh(self, bound: BoundParameter, key: str) -> torch.Tensor:
        real = self._store.view(*bound.slots[key].key)
        return as_users(real, bound.parameter) if real.dim() > bound.parameter.dim() else real

    def reconcile(self) -> None:
        """Take the content of `optimizer.state`. Raises BindError if a parameter's state is wrong or incomplete."""
        state = self._optimizer.state
        for bound, counted in self._bound:
            check_complete(bound, counted, state.get(bound.parameter) or {})
            if bound.group.keys:
                bound.group.check()
            saved = self._saved(bound)
            for key in bound.slots:
                value = saved.get(key)
                if value is not None:
                    check_same(bound.name, key, value, self._fresh(bound, key))
            if counted and STEP in saved:
                check_count(bound.name, saved[STEP])
                check_numbers(bound, saved)
        self._check_apart()
        for bound, counted in self._bound:
            self._adopt(bound, counted, state.get(bound.parameter) or {})
            if bound.group.keys:
                self._adopt_each(bound, list(bound.group.keys), present := bound.group.entries())
                bound.group.put(present)
        if (on_adopt := self._on_adopt()) is not None:
            on_adopt()
        self._rewatch()

    def _check_apart(self) -> None:
        """Raise BindError for states that share memory: torch would update it once for each of them."""
        found: list[tuple[int, int, str, str]] = []
        for bound, _ in self._bound:
            saved = self._saved(bound)
            for key in bound.slots:
                if isinstance(value := saved.get(key), torch.Tensor) and value.numel() and not value.is_meta:
                    start = value.data_ptr()
                    found.append((start, start + value.nbytes, key, bound.name))
        found.sort()
        for (_, end, key, name), (start, _, other_key, other) in pairwise(found):
            if start < end:
                raise BindError(
                    f"optimizer state {key!r} of parameter {name!r} and {other_key!r} of {other!r} share memory, which a compiled"
                    " step keeps apart; give each a tensor of its own"
                )

    def _adopt(self, bound: BoundParameter, counted: bool, saved: dict[str, Any]) -> None:
        """Take over the entries of a parameter and its counters."""
        self._adopt_each(bound, bound.own, saved)
        self._adopt_counts(bound, counted, saved)

    def _saved(self, bound: BoundParameter) -> dict[str, Any]:
        """Return the entries of a parameter and, if it owns them, of its group."""
        saved: dict[str, Any] = self._optimizer.state.get(bound.parameter) or {}
        return {**saved, **bound.group.entries()} if bound.group.keys else saved

    def _adopt_each(self, bound: BoundParameter, keys: Sequence[str], saved: dict[str, Any]) -> None:
        """Copy in each foreign tensor and replace it by the view; set the beginning if there is no entry."""
        for key in keys:
            value, target, view = saved.get(key), self._fresh(bound, key), bound.views[key]
            is_view = place(view) == place(target)
            if not is_view:  # an assignment to `.data` has given it other memory
                bound.views[key] = target
            are_zeros = self._store.takes_zeros(bound.slots[key].key)
            if value is None:
                begins = in_real(exact(bound.beginning(key)))
                if not are_zeros or begins.any() or begins.signbit().any():  # written zeros take memory
                    set_to(in_real(target), begins)
                continue
            if not is_view or value is not view:
                target.copy_(
                    exact(value).detach().clone()
                )  # the tensor may share the same memory in another order
            saved[key] = bound.views[key]

    def _adopt_counts(self, bound: BoundParameter, counted: bool, saved: dict[str, Any]) -> None:
        if bound.count is None:
            return
        if not counted:
            present = any(saved.get(key) is not None for key in bound.slots)
            if bool(bound.count > 0) != present:
                bound.count.fill_(float(present))
        elif (step := saved.get(STEP)) is None:
            bound.count.zero_()
        elif step is not bound.count:
            bound.count.copy_(torch.as_tensor(step, dtype=torch.float32).detach().reshape(()))
            saved[STEP] = bound.count
        for key, number in bound.vectors.items():
            if (value := saved.get(key)) is not None and value is not number:
                number.copy_(torch.as_tensor(value, dtype=torch.float32).detach().reshape(()))
                saved[key] = number

    def refresh(self) -> None:
        """Reconcile from outside a step, if there is anything to take: torch's `load_state_dict` does not copy its
        argument.

        While another thread is inside a step, that is left to the next one.
        """
        if self.watched.changed() < 0:
            return
        with suppress(StateError), self._store.session, held():
            self.watched.check()

    def _put_numbers(self, bound: BoundParameter, entries: Any) -> None:
        """Put Python numbers in the place of their views."""
        for key, kind in bound.numbers.items():
            if entries and isinstance(value := entries.get(key), torch.Tensor):
                entries[key] = kind(value.item())

    def _with_numbers(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a state_dict as the optimizer would write it: torch casts tensors to the type of their parameter when
        it loads them.
        """
        order = {id(p): i for i, p in enumerate(p for g in self._optimizer.param_groups for p in g["params"])}
        for bound, _ in self._bound:
            number = order.get(id(bound.parameter))
            if bound.numbers and number in state_dict["state"]:
                entries = dict(state_dict["state"][number])
                self._put_numbers(bound, entries)
                state_dict["state"] = {**state_dict["state"], number: entries}
            if bound.group.keys:
                bound.group.as_numbers(state_dict["param_groups"][bound.group.place], bound.numbers)
        return state_dict

    def names(self) -> tuple[str, ...]:
        """The trained parameters that have an entry in `optimizer.state`."""
        state = self._optimizer.state
        return tuple(
            bound.name for bound, _ in self._bound if state.get(bound.parameter) or bound.group.begun()
        )

    def publish(self, names: Collection[str] | None = None) -> None:
        """Put the views into `optimizer.state`, as torch does on the first step; with `names`, for these only."""
        for bound, counted in self._bound:
            if names is not None and bound.name not in names:
                self._optimizer.state.pop(bound.parameter, None)
                if bound.group.keys:
                    bound.group.remove()
                continue
            if bound.group.keys:
                bound.group.put(bound.views)
            entries = {key: bound.views[key] for key in bound.own}
            if counted and bound.count is not None:
                entries = {STEP: bound.count, **bound.vectors, **entries}
            if entries:
                self._optimizer.state[bound.parameter].update(entries)
        self._rewatch()

    def _rewatch(self) -> None:
        state, watched = self._optimizer.state, self.watched
        watched.clear()
        watched.namespace(vars(self._optimizer), ["state"], self.reconcile)
        watched.items(state, self.reconcile)
        if any(bound.group.keys for bound, _ in self._bound):
            watched.namespace(vars(self._optimizer), ["param_groups"], self.reconcile)
            watched.members(self._optimizer.param_groups, self.reconcile)
        self.published = True
        views: list[torch.Tensor] = []
        for bound, counted in self._bound:
            if bound.group.keys:
                watched.namespace(bound.group.group, list(bound.group.keys.values()), self.reconcile)
                present = bound.group.entries()
                self.published &= all(present.get(name) is bound.views[name] for name in bound.group.keys)
                views += [bound.views[name] for name in present]
            entries: dict[str, Any] | None = state.get(bound.parameter)
            if not entries:
                self.published &= not bound.own and bound.count is None
                continue
            watched.items(entries, self.reconcile)
            views += [bound.views[key] for key in bound.own]
            self.published &= all(entries.get(key) is bound.views[key] for key in bound.own)
            if counted and bound.count is not None:
                numbers = {STEP: bound.count, **bound.vectors}
                self.published &= all(entries.get(key) is number for key, number in numbers.items())
                views += numbers.values()
        watched.tensors(views, self.reconcile)


class OptimizerStates:
    """The states of all optimizers of one compiled step, as one."""

    def __init__(self, states: Sequence[OptimizerState]):
        self._states = states
        self.watched = Watched()
        for state in states:
            self.watched.other(state.watched)

    @property
    def published(self) -> bool:
        """True if every trained parameter has an entry in the state of its optimizer."""
        return all(state.published for state in self._states)

    def reconcile(self) -> None:
        """Take the state that the optimizers hold. Raises BindError as each of them does."""
        for state in self._states:
            state.reconcile()

    def refresh(self) -> None:
        """Reconcile from outside a step, if there is anything to take."""
        for state in self._states:
            state.refresh()

    def names(self) -> tuple[str, ...]:
        """The trained parameters that have an entry."""
        return tuple(name for state in self._states for name in state.names())

    def publish(self, names: Collection[str] | None = None) -> None:
        """Put the views into the optimizers' state; with `names`, for these only."""
        for state in self._states:
            state.publish(names)

    def close(self, arenas: Collection[_C.Arena]) -> None:
        """Stop following the optimizers."""
        for state in self._states:
            state.close(arenas)
