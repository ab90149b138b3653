"""Checkpoints: everything that decides how training goes on, by role and name, in one file.

A tensor is known by its role and the user's name, never by its place: a checkpoint fits a step of another batch size, device or
memory plan. Collecting and restoring are quick and happen under the step's lock; the file is written and read outside it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch.optim.lr_scheduler import LRScheduler
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.optimizer_groups import Group, compiled_groups
from aicf_mlir.errors import BindError, CheckpointError
from aicf_mlir.ir.signature import literal_names
from aicf_mlir.runtime.checkpoint_file import FilePath, StoredTensor, read_checkpoint, write_checkpoint
from aicf_mlir.runtime.host_values import HostValue
from aicf_mlir.runtime.plain_data import decode, encode, same_structure
from aicf_mlir.runtime.program import Slot
from aicf_mlir.runtime.schedulers import put_states, states_of
from aicf_mlir.runtime.snapshot import Piece, Snapshot, packed
from aicf_mlir.runtime.store import Store
from aicf_mlir.runtime.tensors import DTYPE_NAMES, TORCH_DTYPES

_SETTING = "setting"
"""The role, in the file, of a param group's value that is a tensor."""


@dataclass(frozen=True)
class Trained:
    """What a checkpoint is taken of and put back into."""

    store: Store
    slots: Mapping[str, Slot]
    """As "role/name": all that is shared between steps, but not the literals of the model."""
    groups: Sequence[Group]
    """The param groups as they were compiled."""
    optimizers: Sequence[torch.optim.Optimizer]
    host_values: Mapping[str, HostValue]
    """Python numbers that the step reads from the device."""
    schedulers: Sequence[LRScheduler]
    """Those that the step steps."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    @staticmethod
    def of(
        store: Store,
        step: ModuleOp,
        optimizers: Sequence[torch.optim.Optimizer],
        host_values: Mapping[str, HostValue],
        schedulers: Sequence[LRScheduler],
    ) -> Trained:
        """`step` is the module that says what the step computes."""
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
    """As "role/name"."""
    groups: list[Any]
    """What is compiled in of each param group; see `describe_groups`."""
    settings: Any
    """What the param groups hold, as JSON data."""
    initial_lr: Any
    """Per param group, where an LR scheduler left one."""
    host_values: dict[str, float]
    """Python numbers that the step reads from the device, by name."""
    published: list[str]
    """The parameters that had an entry in `optimizer.state`."""
    schedulers: Any = field(default_factory=list[Any])
    """The state of each, as JSON data."""

    def write(self, path: FilePath) -> None:
        """Write the file, whole or not at all. Raises CheckpointError where the system refuses."""
        keys = ("groups", "settings", "initial_lr", "host_values", "published", "schedulers")
        description = {key: getattr(self, key) for key in keys}
        write_checkpoint(_checked(path, "save"), self.tensors, description)

    def snapshot(self, name: str, step: Trained, settings: object) -> Snapshot:
        """The snapshot that `restore` puts back into `step`, whose param groups hold `settings` now.

        Raises CheckpointError, with `name` of the file, for one of another step.
        """
        self._check_tensors(name, step.slots)
        if self.groups != (ours := describe_groups(step.groups)):
            _other_groups(name, self.groups, ours)
        try:
            restored, initial = self._decoded(self.settings), self._decoded(self.initial_lr)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"{name}: the values of its param groups cannot be read ({error})"
            ) from error
        if not same_structure(restored, settings) or len(initial) != len(self.groups):
            raise CheckpointError(
                f"{name}: its param groups hold {restored}, those of this step {settings}; make the same optimizer, then load"
            )
        if self.host_values.keys() != step.host_values.keys():
            raise CheckpointError(
                f"{name} has the meta values {sorted(self.host_values)}, this step {sorted(step.host_values)}; "
                "compile with the same meta=[…]"
            )
        if len(self.schedulers) != len(step.schedulers):
            raise CheckpointError(
                f"{name} has the state of {len(self.schedulers)} LR schedulers, this step steps {len(step.schedulers)}"
            )
        return Snapshot(step.store, *self._packed(step.slots), restored, tuple(self.published))

    def restore_python(self, step: Trained) -> None:
        """Put back what Python owns: the numbers that the step reads, and the `initial_lr` that LR schedulers start from."""
        for name, value in step.host_values.items():
            value.write(self.host_values[name])
        for group, first in zip(step.param_groups, self._decoded(self.initial_lr), strict=True):
            if first is not None:
                group["initial_lr"] = first
        put_states(step.schedulers, self._decoded(self.schedulers))

    def _decoded(self, values: object) -> Any:
        own = {key: t for key, t in self.tensors.items() if key.startswith(f"{_SETTING}/")}
        return decode(values, {key: _to_torch(tensor) for key, tensor in own.items()})

    def _packed(self, slots: Mapping[str, Slot]) -> tuple[_C.Arena, tuple[Piece, ...]]:
        """The tensors of the file on the host, each for its slot."""
        pieces, nbytes = packed((slot.arena, slot.offset, slot.nbytes) for slot in slots.values())
        memory = _C.Arena("cpu", nbytes)
        for key, piece in zip(slots, pieces, strict=True):
            memory.write(piece.at, self.tensors[key].data)
        return memory, pieces

    def _check_tensors(self, name: str, slots: Mapping[str, Slot]) -> None:
        present = {key for key in self.tensors if not key.startswith(f"{_SETTING}/")}
        for key in [*sorted(slots.keys() - present), *sorted(present - slots.keys())]:
            what = _describe(slots.get(key) or self.tensors[key])
            who = (
                ("this step has", "the file does not")
                if key in slots
                else ("the file has", "this step does not")
            )
            raise CheckpointError(
                f"{name} is of another model or optimizer: {who[0]} {_title(key)}, {what}, {who[1]}"
            )
        for key, slot in slots.items():
            if (got := _describe(self.tensors[key])) != (expected := _describe(slot)):
                raise CheckpointError(
                    f"{name} is of another model: {_title(key)} is {got} in the file, {expected} in this step"
                )


def read(path: FilePath) -> Checkpoint:
    """The checkpoint in a file. Raises CheckpointError for one that is missing, foreign or damaged."""
    tensors, description = read_checkpoint(_checked(path, "load"))
    try:
        found = Checkpoint(tensors, **description)
        numbers = [float(value) for value in found.host_values.values()]
        if len(numbers) != len(found.host_values) or any(type(name) is not str for name in found.published):
            raise TypeError("a description of other types")
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{os.fspath(path)} is no valid checkpoint: {error}") from error
    return found


def collect(step: Trained, settings: object, published: Sequence[str], stream: int) -> Checkpoint:
    """Copies, made on `stream`, of all that a checkpoint holds.

    Raises CheckpointError for a value in `settings` that no file can hold.
    """
    arenas = step.store.arenas
    tensors = {
        key: StoredTensor(slot.dtype, slot.shape, arenas[slot.arena].read(slot.offset, slot.nbytes, stream))
        for key, slot in step.slots.items()
    }

    def keep(value: torch.Tensor) -> str:
        key = f"{_SETTING}/{sum(name.startswith(_SETTING) for name in tensors)}"
        tensors[key] = _from_torch(value)
        return key

    try:
        values = encode(settings, keep)
        schedulers = encode(states_of(step.schedulers), keep)
        initial = encode([group.get("initial_lr") for group in step.param_groups], keep)
    except TypeError as error:
        raise CheckpointError(
            f"a param group or a scheduler holds a value that a checkpoint cannot: {error}"
        ) from error
    numbers = {name: float(value.read.value()) for name, value in step.host_values.items()}
    groups = describe_groups(step.groups)
    return Checkpoint(tensors, groups, values, initial, numbers, list(published), schedulers)


def _names_of(store: Store, host_values: Mapping[str, HostValue]) -> set[str]:
    """The names of the slots that hold Python numbers."""
    return {b.name for b in store.bound if any(b.tensor is value.tensor for value in host_values.values())}


def describe_groups(groups: Sequence[Group]) -> list[Any]:
    """What is compiled in of each param group: kind, flags, and the names of its parameters in their order."""
    return [{**group.rule.described(), "params": list(group.params)} for group in groups]


def _other_groups(name: str, theirs: list[Any], ours: list[Any]) -> NoReturn:
    if len(theirs) != len(ours):
        raise CheckpointError(
            f"{name} has {len(theirs)} param groups, the optimizer of this step {len(ours)}"
        )
    index = next(i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1])
    raise CheckpointError(
        f"{name}: param group {index} is {theirs[index]} in the file, {ours[index]} in this step; "
        "make the optimizer as it was, then load"
    )


def _checked(path: object, call: str) -> FilePath:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):  # pyright: ignore[reportUnknownArgumentType]
        raise BindError(f"{call}(path) needs the path of a file, got {path!r}")
    return path  # pyright: ignore[reportUnknownVariableType]


def _title(key: str) -> str:
    role, _, name = key.partition("/")
    return f"{role} {name!r}"


def _describe(tensor: StoredTensor | Slot) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _from_torch(value: torch.Tensor) -> StoredTensor:
    if value.dtype not in DTYPE_NAMES:
        raise TypeError(f"a tensor of {value.dtype}")
    flat = value.detach().cpu().contiguous().reshape(-1)
    return StoredTensor(
        DTYPE_NAMES[value.dtype], tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    )


def _to_torch(tensor: StoredTensor) -> torch.Tensor:
    if not math.prod(tensor.shape):
        return torch.empty(tensor.shape, dtype=TORCH_DTYPES[tensor.dtype])
    return torch.frombuffer(bytearray(tensor.data), dtype=TORCH_DTYPES[tensor.dtype]).reshape(tensor.shape)
