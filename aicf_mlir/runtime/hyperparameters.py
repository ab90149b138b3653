"""The optimizer's host scalars and their device slots.

`param_groups` is the truth for what the user sets (lr, betas, …); before each step the slots obey it. The step counters and the
bias corrections belong to the device: the host may read them, pin the corrections, and release them.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast

import torch

from aicf_mlir.dialects.optimizer_groups import Adam, Group, Sgd, UpdateRule
from aicf_mlir.errors import BindError, GuardError, StateError
from aicf_mlir.frontend.group_values import hyperparameter, pair, real
from aicf_mlir.runtime.host_values import HostValue
from aicf_mlir.runtime.interrupts import held
from aicf_mlir.runtime.program import Slot
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import current_stream, view
from aicf_mlir.runtime.watched import Watched

_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay")
_SGD = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
_STEP = re.compile(r"step(\.\d+)?")
_BIAS_CORRECTIONS = ("bc1_inv", "bc2_inv")


@dataclass(frozen=True)
class GroupKind:
    """How one kind of optimizer spells its hyperparameters."""

    keys: tuple[str, ...]
    """Entries of a param group that matter, compared before every step."""
    values: Callable[[dict[str, Any]], dict[str, float]]
    """Device scalars by slot name."""
    structure: Callable[[dict[str, Any]], tuple[bool, ...]]
    """What is compiled in and cannot change afterwards."""


def _adam_values(group: dict[str, Any]) -> dict[str, float]:
    beta1, beta2 = pair(group, "betas")
    return {
        "lr": hyperparameter(group, "lr"),
        "beta1": beta1,
        "beta2": beta2,
        "eps": hyperparameter(group, "eps"),
        "weight_decay": hyperparameter(group, "weight_decay"),
    }


def _sgd_values(group: dict[str, Any]) -> dict[str, float]:
    return {key: hyperparameter(group, key) for key in ("lr", "momentum", "dampening", "weight_decay")}


_KINDS: dict[type[UpdateRule], GroupKind] = {
    Adam: GroupKind(
        _ADAM,
        _adam_values,
        lambda g: (bool(g["amsgrad"]), bool(g["maximize"]), bool(g["decoupled_weight_decay"])),
    ),
    Sgd: GroupKind(
        _SGD,
        _sgd_values,
        lambda g: (hyperparameter(g, "momentum") != 0, bool(g["nesterov"]), bool(g["maximize"])),
    ),
}


_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def _same(values: tuple[Any, ...], seen: tuple[Any, ...] | None) -> bool:
    """Whether the values are those seen before; a tensor or an array among them never is."""
    return seen is not None and _is_immutable(values) and values == seen


def slot_name(name: str, group: int) -> str:
    """The slot of `name` for a param group: group 0 has the plain name, group k `name.k`."""
    return name if group == 0 else f"{name}.{group}"


class Hyperparameters(MutableMapping[str, float]):
    """The named meta slots of one compiled step, read and written as a mapping.

    Writing `lr`, `beta1`, … also writes the param group, so that torch and the device agree. Writing `bc1_inv` or `bc2_inv`
    pins that bias correction for the following steps; assigning None, or `release`, lets it follow the step counters again.
    Every parameter has a step counter and bias corrections of its own: reading `step`, `bc1_inv` or `bc2_inv` gives those of
    the first parameter of the group, writing sets those of all. One parameter's counter is `optimizer.state[p]["step"]`.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer | None,
        groups: Sequence[Group],
        store: Store,
        device: torch.device,
        host_values: Mapping[str, HostValue],
    ):
        self._optimizer = optimizer
        self._device = device
        self._session = store.session
        self._arenas = store.arenas
        steps = {name: slot for name, slot in store.of_role("state").items() if _STEP.fullmatch(name)}
        self._slots: dict[str, Slot] = {**store.of_role("meta"), **steps}
        self._kinds = [_KINDS[type(group.rule)] for group in groups]
        self._getters: list[Callable[[dict[str, Any]], tuple[Any, ...]]] = [
            itemgetter(*kind.keys) for kind in self._kinds
        ]
        self._structure = [
            kind.structure(group) for kind, group in zip(self._kinds, self._groups, strict=True)
        ]
        self._members = [list(group["params"]) for group in self._groups]
        self._seen: list[tuple[Any, ...] | None] = [None] * len(groups)
        self._host_values = host_values
        self.refresh: Callable[[], Callable[[], None] | None] = lambda: None
        """Gives what to call before a value of the device is read: it takes up what `optimizer.state` holds by now."""
        self.watched = Watched()
        self.polled = False
        """Whether a value must be read before each step."""
        self._names = [
            slot_name(name, k)
            for k, kind in enumerate(self._kinds)
            for name in (*kind.values(self._groups[k]), *_BIAS_CORRECTIONS, "step")
            if slot_name(name, k) in self._slots
        ]
        for name in self._names:
            base, group = self._split(name)
            if base in _BIAS_CORRECTIONS:
                self._write(slot_name(_pin(base), group), math.nan)
        self.synchronize()

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [] if self._optimizer is None else self._optimizer.param_groups

    def synchronize(self) -> None:
        """Bring the device slots up to the values in `param_groups`.

        Raises StateError if what is compiled in was switched, GuardError if the groups have other parameters or step hooks now.
        """
        groups = self._groups
        if len(groups) != len(self._kinds):
            raise StateError(
                f"the optimizer has {len(groups)} param groups now, {len(self._kinds)} were compiled; call recompile()"
            )
        for k, (group, members) in enumerate(zip(groups, self._members, strict=True)):
            if [id(p) for p in group["params"]] != [id(p) for p in members]:
                raise GuardError(
                    f"param group {k} has other parameters ({len(group['params'])}) than the {len(members)} that were"
                    " compiled; call recompile() to train what it has now"
                )
        for hooks in _STEP_HOOKS:
            if self._optimizer is not None and vars(self._optimizer).get(hooks):
                raise GuardError(
                    f"the optimizer has {hooks.removeprefix('_optimizer_')} now, which a compiled step does not run; remove them"
                )
        for k, group in enumerate(groups):
            values = self._getters[k](group)
            if not _same(values, self._seen[k]):
                self._obey(k, group)
                self._seen[k] = values if _is_immutable(values) else None
        self._rewatch()

    def _rewatch(self) -> None:
        """Watch the groups as they are; a value that may change in place is read before each step instead."""
        self.watched.clear()
        self.polled = False
        if self._optimizer is None:
            return
        own = vars(self._optimizer)
        self.watched.namespace(own, ["param_groups"], self.synchronize)
        self.watched.members(self._groups, self.synchronize)
        for k, group in enumerate(self._groups):
            self.watched.namespace(group, ["params", *self._kinds[k].keys], self.synchronize)
            self.watched.members(group["params"], self.synchronize)
            self.polled |= not _is_immutable(self._getters[k](group))
        for hooks in _STEP_HOOKS:
            self.watched.items(own[hooks], self.synchronize)

    def _obey(self, k: int, group: dict[str, Any]) -> None:
        kind = self._kinds[k]
        if kind.structure(group) != self._structure[k]:
            raise StateError(
                f"param group {k}: momentum, nesterov, amsgrad, maximize or decoupled_weight_decay was switched "
                "on or off after compilation; these are compiled in, so call recompile()"
            )
        for name, value in kind.values(group).items():
            if (slot := slot_name(name, k)) in self._slots:
                self._write(slot, value)

    def _split(self, name: str) -> tuple[str, int]:
        base, _, group = name.partition(".")
        return base, int(group or 0)

    def _write(self, name: str, value: float) -> None:
        """Set every element of a slot."""
        slot = self._slots[name]
        data = struct.pack("d", value) * math.prod(slot.shape)
        self._arenas[slot.arena].write(slot.offset, data, current_stream(self._device))

    def _tensor(self, name: str) -> torch.Tensor:
        slot = self._slots[name]
        return view(self._arenas[slot.arena], slot.offset, slot.dtype, slot.shape)

    def _require(self, name: str) -> None:
        if name not in self._names:
            raise KeyError(f"no meta slot {name!r}; this step has {', '.join(self)}")

    def __getitem__(self, name: str) -> float:
        if name in self._host_values:
            return float(self._host_values[name].read.value())
        self._require(name)
        base, group = self._split(name)
        if base not in (*_BIAS_CORRECTIONS, "step"):
            return self._kinds[group].values(self._groups[group])[base]
        if (refresh := self.refresh()) is not None:
            refresh()
        return float(self._tensor(name).flatten()[0])

    def __setitem__(self, name: str, value: float | None) -> None:
        with self._session, held():
            self._set(name, value)

    def _set(self, name: str, value: float | None) -> None:
        if name in self._host_values:
            if value is None:
                raise BindError(f"meta slot {name!r}: expected a number, got None")
            self._host_values[name].write(value)
            return
        self._require(name)
        base, group = self._split(name)
        if value is None:
            self._release(name)
            return
        if isinstance(value, float) and math.isnan(value):
            raise BindError(
                f"meta slot {name!r}: nan is not a value; assign None to release a pinned correction"
            )
        number = real(value, f"meta slot {name!r}")
        if base == "step":
            self._tensor(name).fill_(number)
        elif base in _BIAS_CORRECTIONS:
            self._write(slot_name(_pin(base), group), number)
            self._write(name, number)
        else:
            self._set_group(group, base, number)
            self.synchronize()

    def _set_group(self, group: int, base: str, value: float) -> None:
        settings = self._groups[group]
        before = dict(settings)
        if base in ("beta1", "beta2"):
            beta1, beta2 = settings["betas"]
            settings["betas"] = (value, beta2) if base == "beta1" else (beta1, value)
        else:
            settings[base] = value
        if self._kinds[group].structure(settings) != self._structure[group]:
            settings.update(before)
            raise StateError(
                f"{base} = {value} would change what was compiled (momentum on or off); call recompile()"
            )

    def release(self, name: str) -> None:
        """Let a pinned `bc1_inv` or `bc2_inv` follow the step counter again from the next step on."""
        with self._session, held():
            self._release(name)

    def _release(self, name: str) -> None:
        self._require(name)
        base, group = self._split(name)
        if base not in _BIAS_CORRECTIONS:
            raise BindError(
                f"meta slot {name!r} cannot be released: only bc1_inv and bc2_inv are pinned and released"
            )
        self._write(slot_name(_pin(base), group), math.nan)

    def follow_steps(self) -> None:
        """Set every free bias correction to its value at its parameter's step, at least that of the first step."""
        for name in self._names:
            base, group = self._split(name)
            if base not in _BIAS_CORRECTIONS or not math.isnan(
                self._tensor(slot_name(_pin(base), group)).item()
            ):
                continue
            beta = self[slot_name("beta" + base[2], group)]
            steps = self._tensor(slot_name("step", group)).double().clamp(min=1.0)
            self._tensor(name).copy_(1 / (1 - beta**steps))

    def settings(self) -> list[dict[str, Any]]:
        """What the param groups hold now, for a snapshot."""
        return [
            {
                key: value.clone() if isinstance(value := group[key], torch.Tensor) else value
                for key in kind.keys
            }
            for kind, group in zip(self._kinds, self._groups, strict=True)
        ]

    def restore_settings(self, settings: list[dict[str, Any]]) -> None:
        """Put back what `settings` returned; the device slots were restored with their arena."""
        for k, (group, saved) in enumerate(zip(self._groups, settings, strict=True)):
            group.update(saved)
            self._seen[k] = None
        self.synchronize()

    def __delitem__(self, name: str) -> None:
        raise BindError("meta slots cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter([*self._names, *self._host_values])

    def __len__(self) -> int:
        return len(self._names) + len(self._host_values)

    def __repr__(self) -> str:
        return f"Hyperparameters({', '.join(f'{name}={value!r}' for name, value in self.items())})"


def _is_immutable(values: tuple[Any, ...]) -> bool:
    """Whether a later look at the same objects sees the same numbers: no tensors and no lists."""
    return all(
        _is_immutable(cast(tuple[Any, ...], value))
        if isinstance(value, tuple)
        else isinstance(value, (int, float))
        for value in values
    )


def _pin(correction: str) -> str:
    """`bc1_inv` is pinned through the slot `bc1_pin`."""
    return correction.replace("_inv", "_pin")
