"""The optimizer's host scalars and their device slots.

`param_groups` is the source of the values that the user sets (lr, betas, …); the slots are updated from it before each
step. The step counters and the bias corrections belong to the device: the host may read them, pin the corrections, and
release them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, cast

import torch

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.errors import BindError, GuardError, StateError
from aicf_mlir.host.interrupts import held
from aicf_mlir.optimizers import CORRECTIONS, SWITCHES
from aicf_mlir.optimizers.advance import Correction
from aicf_mlir.optimizers.group_values import hyperparameters, real, switches
from aicf_mlir.optimizers.slots import STEP, OptimizerSlot
from aicf_mlir.runtime.host_values import HostValue
from aicf_mlir.runtime.not_copied import NotCopied
from aicf_mlir.runtime.program import Slot
from aicf_mlir.runtime.step_numbers import StepNumber
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import current_stream, view
from aicf_mlir.runtime.watched import Watched

_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def _same(values: tuple[Any, ...], seen: tuple[Any, ...] | None) -> bool:
    """True if the values are the ones seen before; a tensor or an array among them never is."""
    return seen is not None and _is_immutable(values) and values == seen


class Hyperparameters(NotCopied, MutableMapping[str, float]):
    """The named host scalars of one compiled step, read and written as a mapping.

    Writing `lr`, `beta1`, … also writes the param group, so that torch and the device agree. Writing `bc1_inv` or
    `bc2_inv` pins that bias correction for the following steps; assigning None, or `release`, lets it follow the step
    counters again. Every parameter has a step counter and bias corrections of its own: reading `step`, `bc1_inv` or
    `bc2_inv` gives the first parameter's of the group, writing sets all parameters'. One parameter's counter is
    `optimizer.state[p]["step"]`.
    """

    def __init__(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        groups: Sequence[ParamGroup],
        store: Store,
        device: torch.device,
        host_values: Mapping[str, HostValue],
        check: Callable[[], None],
        numbers: Mapping[str, StepNumber],
    ):
        """`check` raises GuardError for values that the step was not compiled for."""
        self._optimizers = optimizers
        self._device = device
        self.written: dict[tuple[str, str], bytes] = {}
        """What the slots have got from the host."""
        self._session = store.session
        self._arenas = store.arenas
        self._rules = [type(group.rule) for group in groups]
        self._places: dict[OptimizerSlot, Slot] = {
            slot: store.slots[slot.key]
            for k, group in enumerate(groups)
            for slot in group.rule.group_slots(k)
            if slot.key in store.slots
        }
        self._getters = [partial(_entries, rule.entries()) for rule in self._rules]
        self._structure = [
            switches(rule, group) for rule, group in zip(self._rules, self._groups, strict=True)
        ]
        self._members = [list(group["params"]) for group in self._groups]
        self._seen: list[tuple[Any, ...] | None] = [None] * len(groups)
        self._host_values = host_values
        self._check = check
        self._numbers = {
            name: number for name, number in numbers.items() if ("host_scalar", name) in store.slots
        }
        self._number_places = {name: store.slots["host_scalar", name] for name in self._numbers}
        self.refresh: Callable[[], Callable[[], None] | None] = lambda: None
        """Returns a function to call before a value of the device is read: it takes up the current content of
        `optimizer.state`.
        """
        self.watched = Watched()
        self.polled = False
        """True if a value must be read before each step."""
        self._corrections: dict[OptimizerSlot, Correction] = {
            OptimizerSlot(k, row.name): row for k, rule in enumerate(self._rules) for row in rule.CORRECTIONS
        }
        shown = [
            OptimizerSlot(k, name)
            for k, rule in enumerate(self._rules)
            for name in (*rule.setting_slots(), *(row.name for row in rule.CORRECTIONS), STEP)
        ]
        self._shown = {slot.slot: slot for slot in shown if slot in self._places}
        """The slots shown to the user, by name: all but the pins."""
        for slot in self._shown.values():
            if slot in self._corrections:
                self._write(self._pin(slot), math.nan)
        for name, number in self._numbers.items():
            self._fill(self._number_places[name], number.value)
        self.synchronize()

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def synchronize(self) -> None:
        """Bring the device slots up to the values in `param_groups`.

        Raises StateError if a compiled-in setting was switched, GuardError if the groups have other parameters or step
        hooks now.
        """
        groups = self.expect_groups()
        changed = False
        for k, group in enumerate(groups):
            values = self._getters[k](group)
            if not _same(values, self._seen[k]):
                if not changed:
                    self._check()
                changed = True
                self._obey(k, group)
                self._seen[k] = values if _is_immutable(values) else None
        self._rewatch()

    def expect_groups(self) -> list[dict[str, Any]]:
        """Return the param groups. Raises the errors of `synchronize` if they are not the compiled groups."""
        groups = self._groups
        if len(groups) != len(self._rules):
            raise StateError(
                f"the optimizer has {len(groups)} param groups now, {len(self._rules)} were compiled; call recompile()"
            )
        for k, (group, members) in enumerate(zip(groups, self._members, strict=True)):
            if [id(p) for p in group["params"]] != [id(p) for p in members]:
                raise GuardError(
                    f"param group {k} has other parameters ({len(group['params'])}) than the {len(members)} that were"
                    " compiled; call recompile() to train what it has now"
                )
        for hooks in _STEP_HOOKS:
            if any(vars(optimizer).get(hooks) for optimizer in self._optimizers):
                raise GuardError(
                    f"the optimizer has {hooks.removeprefix('_optimizer_')} now, which a compiled step does not run; remove them"
                )
        return groups

    def _rewatch(self) -> None:
        """Watch the current groups; a value that may change in place is read before each step instead."""
        self.watched.clear()
        self.polled = False
        for optimizer in self._optimizers:
            own = vars(optimizer)
            self.watched.namespace(own, ["param_groups"], self.synchronize)
            self.watched.members(optimizer.param_groups, self.synchronize)
            for hooks in _STEP_HOOKS:
                self.watched.items(own[hooks], self.synchronize)
        for k, group in enumerate(self._groups):
            self.watched.namespace(group, ["params", *self._rules[k].entries()], self.synchronize)
            self.watched.members(group["params"], self.synchronize)
            self.polled |= not _is_immutable(self._getters[k](group))

    def _obey(self, k: int, group: dict[str, Any]) -> None:
        self._expect_structure(k, group)
        for name, value in hyperparameters(self._rules[k], group).items():
            if (slot := OptimizerSlot(k, name)) in self._places:
                self._write(slot, value)

    def _expect_structure(self, k: int, group: Mapping[str, Any]) -> None:
        if switches(self._rules[k], group) != self._structure[k]:
            raise StateError(
                f"param group {k}: {', '.join(SWITCHES[:-1])} or {SWITCHES[-1]} was switched "
                "on or off after compilation; these are compiled in, so call recompile()"
            )

    def _pin(self, slot: OptimizerSlot) -> OptimizerSlot:
        """Return the slot through which a correction is pinned."""
        return OptimizerSlot(slot.group, self._corrections[slot].pin)

    def _write(self, slot: OptimizerSlot, value: float) -> None:
        """Set every element of a slot."""
        self._fill(self._places[slot], value)

    def _fill(self, place: Slot, value: float) -> None:
        data = struct.pack("d", value) * math.prod(place.shape)
        self.written[place.role, place.name] = data
        self._arenas[place.arena].write(place.offset, data, current_stream(self._device))

    def _tensor(self, slot: OptimizerSlot) -> torch.Tensor:
        place = self._places[slot]
        return view(self._arenas[place.arena], place.offset, place.dtype, place.shape)

    def _require(self, name: str) -> OptimizerSlot:
        if name not in self._shown:
            raise KeyError(f"no host scalar {name!r}; this step has {', '.join(self)}")
        return self._shown[name]

    def _value(self, slot: OptimizerSlot) -> float:
        if slot not in self._corrections and slot.name != STEP:
            return hyperparameters(self._rules[slot.group], self._groups[slot.group])[slot.name]
        if (refresh := self.refresh()) is not None:
            refresh()
        return float(self._tensor(slot).flatten()[0])

    def named(self, name: str, optimizer: torch.optim.Optimizer) -> list[str]:
        """Return the slots of this name, of all param groups of one optimizer."""
        owners = [each for each in self._optimizers for _ in each.param_groups]
        return [
            key for key, slot in self._shown.items() if slot.name == name and owners[slot.group] is optimizer
        ]

    def __getitem__(self, name: str) -> float:
        if name in self._host_values:
            return float(self._host_values[name].read.value())
        if name in self._numbers:
            return self._numbers[name].value
        return self._value(self._require(name))

    def __setitem__(self, name: str, value: float | None) -> None:
        with self._session, held():
            self._set(name, value)

    def _set(self, name: str, value: float | None) -> None:
        if name in self._host_values:
            if value is None:
                raise BindError(f"host scalar {name!r}: expected a number, got None")
            self._host_values[name].write(value)
            return
        if name in self._numbers:
            self._set_number(name, value)
            return
        slot = self._require(name)
        if value is None:
            self._release(name)
            return
        if isinstance(value, float) and math.isnan(value):
            raise BindError(
                f"host scalar {name!r}: nan is not a value; assign None to release a pinned correction"
            )
        number = real(value, f"host scalar {name!r}")
        if slot.name == STEP:
            self._tensor(slot).fill_(number)
        elif slot in self._corrections:
            self._write(self._pin(slot), number)
            self._write(slot, number)
        else:
            self._set_group(slot, number)
            self.synchronize()

    def _set_number(self, name: str, value: object) -> None:
        number = self._numbers[name]
        checked = number.check(value, f"host scalar {name!r}")
        self._fill(self._number_places[name], checked)
        number.value = checked

    def _set_group(self, slot: OptimizerSlot, value: float) -> None:
        rule, settings = self._rules[slot.group], self._groups[slot.group]
        before = dict(settings)
        setting = rule.setting_of(slot.name)
        settings[setting.key] = setting.replaced(settings[setting.key], slot.name, value)
        if switches(rule, settings) != self._structure[slot.group]:
            settings.update(before)
            raise StateError(
                f"{slot.name} = {value} would change what was compiled ({setting.key} on or off); call recompile()"
            )

    def release(self, name: str) -> None:
        """Let a pinned `bc1_inv` or `bc2_inv` follow the step counter again from the next step on."""
        with self._session, held():
            self._release(name)

    def _release(self, name: str) -> None:
        slot = self._require(name)
        if slot not in self._corrections:
            raise BindError(
                f"host scalar {name!r} cannot be released: only {' and '.join(CORRECTIONS)} are pinned and released"
            )
        self._write(self._pin(slot), math.nan)

    def follow_steps(self) -> None:
        """Set every free bias correction to its value at its parameter's step, at least that of the first step."""
        for slot in self._shown.values():
            row = self._corrections.get(slot)
            if row is None or not math.isnan(self._tensor(self._pin(slot)).item()):
                continue
            beta = self._value(OptimizerSlot(slot.group, row.beta))
            steps = self._tensor(OptimizerSlot(slot.group, STEP)).double().clamp(min=1.0)
            self._tensor(slot).copy_(row.free(beta, steps))

    def settings(self) -> list[dict[str, Any]]:
        """Return the content of the param groups, followed by the numbers of the step itself, for a snapshot."""
        own = [{name: number.value for name, number in self._numbers.items()}] if self._numbers else []
        return [
            {
                key: value.clone() if isinstance(value := group[key], torch.Tensor) else value
                for key in rule.entries()
            }
            for rule, group in zip(self._rules, self._groups, strict=True)
        ] + own

    def check_settings(self, settings: list[dict[str, Any]]) -> None:
        """Raise the AicfError that `restore_settings` would raise for values that the step rejects; nothing changes."""
        count = len(self._rules)
        for k, (group, saved) in enumerate(zip(self._groups, settings[:count], strict=True)):
            hyperparameters(self._rules[k], {**group, **saved})
            self._expect_structure(k, {**group, **saved})
        for name, value in (item for own in settings[count:] for item in own.items()):
            self._numbers[name].check(value, f"host scalar {name!r}")

    def restore_settings(self, settings: list[dict[str, Any]]) -> None:
        """Restore the values that `settings` returned; the device slots were restored with their arena."""
        self.write_settings(settings)
        self.synchronize()

    def read_back(self) -> None:
        """Take up what the slots have: their memory was restored."""
        for place in (*self._places.values(), *self._number_places.values()):
            if (place.role, place.name) in self.written:
                arena = self._arenas[place.arena]
                data = arena.read(place.offset, place.nbytes, current_stream(self._device))
                self.written[place.role, place.name] = bytes(data)

    def write_settings(self, settings: list[dict[str, Any]]) -> None:
        """Write Python's part of the settings; the device slots follow before the next step."""
        count = len(self._rules)
        for k, (group, saved) in enumerate(zip(self._groups, settings[:count], strict=True)):
            group.update(saved)
            self._seen[k] = None
        for name, value in (item for own in settings[count:] for item in own.items()):
            self._numbers[name].value = value

    def __delitem__(self, name: str) -> None:
        raise BindError("host scalars cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter([*self._shown, *self._host_values, *self._numbers])

    def __len__(self) -> int:
        return len(self._shown) + len(self._host_values) + len(self._numbers)

    def __repr__(self) -> str:
        return f"Hyperparameters({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def _entries(keys: Sequence[str], group: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a param group under these keys."""
    if missing := [key for key in keys if key not in group]:
        raise StateError(
            f"a param group has no {', '.join(map(repr, missing))} any more, which the step was compiled with; put it back"
        )
    return tuple(group[key] for key in keys)


def _is_immutable(values: tuple[Any, ...]) -> bool:
    """True if a later read of the same objects sees the same numbers: no tensors and no lists."""
    return all(
        _is_immutable(cast(tuple[Any, ...], value))
        if isinstance(value, tuple)
        else isinstance(value, (int, float))
        for value in values
    )
