"""Checkpoints: everything that determines the further training, by role and name, in one file.

A tensor is known by its role and the user's name, never by its place: a checkpoint fits a step of another batch size, device or
memory plan. Collecting and restoring are quick and happen under the step's lock; the file is written and read outside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.optimizer_groups import ParamGroup, compiled_groups
from aicf_mlir.errors import BindError, CheckpointError
from aicf_mlir.ir.signature import literal_names
from aicf_mlir.optimizers.rule import UpdateRule
from aicf_mlir.optimizers.slots import group_key
from aicf_mlir.runtime.checkpoint_file import FilePath, StoredTensor, read_checkpoint, write_checkpoint
from aicf_mlir.runtime.description import ENTRIES, checked, expect_numbers, expect_rates, is_number
from aicf_mlir.runtime.host_values import HostValue
from aicf_mlir.runtime.plain_data import encode
from aicf_mlir.runtime.program import Slot
from aicf_mlir.runtime.schedulers import class_of, states_of
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import DTYPE_NAMES

SETTING = "setting"
"""The role, in the file, of a param group's value that is a tensor."""


@dataclass(frozen=True)
class Trained:
    """The source and the target of a checkpoint."""

    store: Store
    slots: Mapping[str, Slot]
    """The slots by "role/name": all slots shared between steps, but not the literals of the model."""
    groups: Sequence[ParamGroup]
    """The param groups as they were compiled."""
    optimizers: Sequence[torch.optim.Optimizer]
    host_values: Mapping[str, HostValue]
    """Python numbers that the step reads from the device."""
    schedulers: Sequence[LRScheduler]
    """The schedulers that the step steps."""

    @property
    def rules(self) -> list[UpdateRule]:
        """The update rules, one for each param group."""
        return [group.rule for group in self.groups]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The param groups of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @staticmethod
    def of(
        store: Store,
        step: ModuleOp,
        optimizers: Sequence[torch.optim.Optimizer],
        host_values: Mapping[str, HostValue],
        schedulers: Sequence[LRScheduler],
    ) -> Trained:
        """Make it from a step; `step` is the module that defines the step's computation."""
        derived = {*literal_names(step.ops), *_names_of(store, host_values)}
        slots = {
            f"{role}/{name}": slot
            for (role, name), slot in sorted(store.slots.items())
            if role != "buffer" or name not in derived
        }
        return Trained(store, slots, compiled_groups(step), optimizers, host_values, schedulers)


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a file, on the host."""

    tensors: Mapping[str, StoredTensor]
    """The tensors by "role/name"."""
    groups: list[Any]
    """The compiled-in part of each param group; see `describe_groups`."""
    settings: Any
    """The content of the param groups, as JSON data, as are the next four."""
    initial_lr: Any
    """The initial rates per param group, if an LR scheduler left them."""
    further: list[dict[str, Any]]
    """The other numbers per param group, as OneCycleLR and users leave them."""
    host_values: dict[str, Any]
    """Python numbers that the step reads from the device, by name."""
    schedulers: Any
    """The state of each scheduler."""
    scheduler_classes: list[str]
    published: list[str]
    """The parameters that had an entry in `optimizer.state`."""

    def write(self, path: FilePath) -> None:
        """Write the file, whole or not at all. Raises CheckpointError if the system refuses."""
        write_checkpoint(_checked(path, "save"), self.tensors, {key: getattr(self, key) for key in ENTRIES})


def read(path: FilePath) -> Checkpoint:
    """Return the checkpoint in a file. Raises CheckpointError for one that is missing, foreign or damaged."""
    tensors, description = read_checkpoint(_checked(path, "load"))
    try:
        return Checkpoint(tensors, **checked(description))
    except ValueError as error:
        raise CheckpointError(f"{os.fspath(path)} is no valid checkpoint: {error}") from error


def collect(
    step: Trained, settings: list[dict[str, Any]], published: Sequence[str], stream: int
) -> Checkpoint:
    """Return copies, made on `stream`, of all that a checkpoint holds.

    Raises CheckpointError for a value in `settings` that no file can hold.
    """
    arenas = step.store.arenas
    tensors = {
        key: StoredTensor(slot.dtype, slot.shape, arenas[slot.arena].read(slot.offset, slot.nbytes, stream))
        for key, slot in step.slots.items()
    }

    def keep(value: torch.Tensor) -> str:
        key = f"{SETTING}/{sum(name.startswith(SETTING) for name in tensors)}"
        tensors[key] = _from_torch(value)
        return key

    initial = [group.get("initial_lr") for group in step.param_groups]
    numbers = {name: float(value.read.value()) for name, value in step.host_values.items()}
    try:
        read = Checkpoint(
            tensors,
            groups=describe_groups(step.groups),
            settings=encode(settings, keep),
            schedulers=[encode(state, keep) for state in states_of(step.schedulers)],
            initial_lr=[encode(value, keep) for value in initial],
            further=[
                {
                    key: encode(group[key], keep)
                    for key in further_numbers(
                        group, [*rule.entries(), *filter(None, map(group_key, rule.states))]
                    )
                }
                for group, rule in zip(step.param_groups, step.rules, strict=True)
            ],
            host_values={name: encode(value, keep) for name, value in numbers.items()},
            scheduler_classes=[class_of(scheduler) for scheduler in step.schedulers],
            published=list(published),
        )
        expect_rates(settings[: len(step.groups)], initial)  # a written file must be readable
        expect_numbers(numbers)
        return read
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"a param group or a scheduler holds a value that a checkpoint cannot: {error}"
        ) from error


def further_numbers(group: Mapping[str, Any], settings: Collection[str]) -> list[str]:
    """Return the keys of a param group with a number, except its `settings`: torch's `state_dict` has them too."""
    known = {*settings, "params", "initial_lr"}
    return [
        key
        for key, value in group.items()
        if key not in known and (is_number(value) or (isinstance(value, torch.Tensor) and value.numel() == 1))
    ]


def _names_of(store: Store, host_values: Mapping[str, HostValue]) -> set[str]:
    """Return the names of the slots that hold Python numbers."""
    return {b.name for b in store.bound if any(b.tensor is value.tensor for value in host_values.values())}


def describe_groups(groups: Sequence[ParamGroup]) -> list[Any]:
    """Return the compiled-in part of each param group: kind, flags, and the names of its parameters in their order."""
    return [{**group.rule.described(), "params": list(group.params)} for group in groups]


def _checked(path: object, call: str) -> FilePath:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):  # pyright: ignore[reportUnknownArgumentType]
        raise BindError(f"{call}(path) needs the path of a file, got {path!r}")
    return path  # pyright: ignore[reportUnknownVariableType]


def _from_torch(value: torch.Tensor) -> StoredTensor:
    if value.dtype not in DTYPE_NAMES:
        raise TypeError(f"a tensor of {value.dtype}")
    flat = value.detach().cpu().contiguous().reshape(-1)
    return StoredTensor(
        DTYPE_NAMES[value.dtype], tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    )
