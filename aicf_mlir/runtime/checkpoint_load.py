"""Loading a checkpoint: all of it is checked against the step before anything is written, and an error undoes earlier
writes.

First everything that can be refused is refused: other tensors, groups, values, names, schedulers. Then Python's part is
written, since that may run code of the user's, and last the memory of the step.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from aicf_mlir import _C
from aicf_mlir.errors import AicfError, CheckpointError
from aicf_mlir.runtime.checkpoint import SETTING, Checkpoint, Trained, describe_groups
from aicf_mlir.runtime.checkpoint_file import StoredTensor
from aicf_mlir.runtime.description import expect_numbers, expect_rates
from aicf_mlir.runtime.hyperparameters import Hyperparameters
from aicf_mlir.runtime.plain_data import decode, same_structure
from aicf_mlir.runtime.program import Slot
from aicf_mlir.runtime.scheduler_states import expect_fit
from aicf_mlir.runtime.schedulers import class_of, put_states
from aicf_mlir.runtime.snapshot import ArenaRange, Snapshot, packed
from aicf_mlir.runtime.tensors import TORCH_DTYPES
from aicf_mlir.runtime.undo import Remembered


@dataclass(frozen=True)
class DecodedValues:
    """The part of a checkpoint that Python owns, decoded; the names are the same as in `Checkpoint`."""

    settings: Any
    initial_lr: list[Any]
    further: list[dict[str, Any]]
    host_values: dict[str, Any]
    schedulers: list[Any]

    def of_schedulers(self) -> list[dict[str, Any]]:
        """The entries of each param group that are no settings of the optimizer."""
        firsts = [{} if first is None else {"initial_lr": first} for first in self.initial_lr]
        further = self.further or [dict[str, Any]() for _ in firsts]
        return [{**more, **first} for more, first in zip(further, firsts, strict=True)]


@dataclass(frozen=True)
class Prepared:
    """A checkpoint that fits a step."""

    step: Trained
    meta: Hyperparameters
    snapshot: Snapshot
    values: DecodedValues

    @contextmanager
    def written(self) -> Generator[None]:
        """Put the values that Python owns into the step; a failure, here or in the block, restores all of them.

        The block writes the memory of the step.
        """
        step, values = self.step, self.values
        numbers = {name: value.read.value() for name, value in step.host_values.items()}
        settings = self.meta.settings()
        remembered = Remembered([step.param_groups, *step.schedulers])
        try:
            put_states(step.schedulers, values.schedulers)
            for group, numbers in zip(step.param_groups, values.of_schedulers(), strict=True):
                group.update(numbers)
            for name, value in step.host_values.items():
                value.write(values.host_values[name])
            self.meta.write_settings(values.settings)
            yield
        except BaseException as error:
            for name, value in step.host_values.items():
                value.write(numbers[name])
            remembered.put_back()
            self.meta.write_settings(settings)
            if isinstance(error, Exception) and not isinstance(error, AicfError):
                raise CheckpointError(
                    f"the checkpoint cannot be put back ({type(error).__name__}: {error}); the step is as it was"
                ) from error
            raise


def prepare(read: Checkpoint, name: str, step: Trained, meta: Hyperparameters) -> Prepared:
    """Return all that `load` puts into `step`, whose numbers are `meta`, decoded and checked; nothing changes.

    Raises CheckpointError, with `name` of the file, for a checkpoint of another step, or with values that no step
    takes. Raises GuardError or StateError if the param groups are not the compiled ones.
    """
    meta.expect_groups()
    _check_tensors(read, name, step.slots)
    if read.groups != (ours := describe_groups(step.groups)):
        refuse_groups(name, read.groups, ours)
    try:
        values = _decoded(read)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{name}: the values of its param groups cannot be read ({error})") from error
    _check_settings(name, step, meta, values)
    _check_names(read, name, step, values)
    _check_schedulers(read, name, step, values)
    memory, pieces = _packed(read, step.slots)
    return Prepared(
        step, meta, Snapshot(step.store, memory, pieces, values.settings, tuple(read.published)), values
    )


def _decoded(read: Checkpoint) -> DecodedValues:
    """Decode the values. Each tensor of a setting belongs to one value: two values sharing one would change together."""
    own = {key: _to_torch(t) for key, t in read.tensors.items() if key.startswith(f"{SETTING}/")}
    values = DecodedValues(
        decode(read.settings, own),
        decode(read.initial_lr, own),
        [{key: decode(value, own) for key, value in group.items()} for group in read.further],
        {name: decode(value, own) for name, value in read.host_values.items()},
        decode(read.schedulers, own),
    )
    if own:
        raise ValueError(f"none of them is {', '.join(own)}")
    return values


def _check_settings(name: str, step: Trained, meta: Hyperparameters, values: DecodedValues) -> None:
    settings, count = meta.settings(), len(step.groups)
    if not same_structure(values.settings, settings) or not _are_each(count, values):
        raise CheckpointError(
            f"{name}: its param groups hold {values.settings}, those of this step {settings}; make the same optimizer, then load"
        )
    try:
        expect_rates(values.settings[:count], values.initial_lr)
        for numbers, rule in zip(values.further, step.rules, strict=False):
            expect_numbers(numbers)
            if taken := sorted(numbers.keys() & {*rule.entries(), "params", "initial_lr"}):
                raise ValueError(f"{', '.join(taken)} twice")
        meta.check_settings(values.settings)
    except (ValueError, AicfError) as error:
        raise CheckpointError(
            f"{name}: the values of its param groups are none that this step takes: {error}"
        ) from error


def _are_each(groups: int, values: DecodedValues) -> bool:
    """True if there is one for each param group; files without schedulers may have no further numbers."""
    return len(values.initial_lr) == groups and len(values.further) in (0, groups)


def _check_names(read: Checkpoint, name: str, step: Trained, values: DecodedValues) -> None:
    if values.host_values.keys() != step.host_values.keys():
        raise CheckpointError(
            f"{name} has the host scalars {sorted(values.host_values)}, this step {sorted(step.host_values)}; "
            "compile with the same meta=[…]"
        )
    try:
        expect_numbers(values.host_values)
    except ValueError as error:
        raise CheckpointError(f"{name}: {error}") from error
    known = {parameter for group in step.groups for parameter in group.params}
    if strange := sorted(set(read.published) - known):
        raise CheckpointError(
            f"{name} has optimizer state of {', '.join(strange)}, which this step does not train"
        )


def _check_schedulers(read: Checkpoint, name: str, step: Trained, values: DecodedValues) -> None:
    if len(values.schedulers) != len(step.schedulers):
        raise CheckpointError(
            f"{name} has the state of {len(values.schedulers)} LR schedulers, this step steps {len(step.schedulers)}"
        )
    ours = [class_of(scheduler) for scheduler in step.schedulers]
    if read.scheduler_classes != ours:
        theirs = ", ".join(read.scheduler_classes) or "LR schedulers whose class it does not say"
        raise CheckpointError(
            f"{name} has the state of {theirs}, this step steps {', '.join(ours) or 'none'}; "
            "make the LR schedulers as they were, then load"
        )
    merged = iter(
        [
            {**group, **settings, **numbers}
            for group, settings, numbers in zip(
                step.param_groups, values.settings[: len(step.groups)], values.of_schedulers(), strict=True
            )
        ]
    )
    groups = {id(optimizer): [next(merged) for _ in optimizer.param_groups] for optimizer in step.optimizers}
    for index, (scheduler, state) in enumerate(zip(step.schedulers, values.schedulers, strict=True)):
        try:
            expect_fit(scheduler, state, groups)
        except ValueError as error:
            raise CheckpointError(
                f"{name}: the state of LR scheduler {index}, {ours[index]}, does not fit: {error}"
            ) from error


def _packed(read: Checkpoint, slots: Mapping[str, Slot]) -> tuple[_C.Arena, tuple[ArenaRange, ...]]:
    """Return the tensors of the file on the host, each for its slot."""
    pieces, nbytes = packed((slot.arena, slot.offset, slot.nbytes) for slot in slots.values())
    memory = _C.Arena("cpu", nbytes)
    for key, piece in zip(slots, pieces, strict=True):
        memory.write(piece.at, read.tensors[key].data)
    return memory, pieces


def _check_tensors(read: Checkpoint, name: str, slots: Mapping[str, Slot]) -> None:
    present = {key for key in read.tensors if not key.startswith(f"{SETTING}/")}
    for key in [*sorted(slots.keys() - present), *sorted(present - slots.keys())]:
        what = _describe(slots.get(key) or read.tensors[key])
        who = (
            ("this step has", "the file does not") if key in slots else ("the file has", "this step does not")
        )
        raise CheckpointError(
            f"{name} is of a step with another model, optimizer or option: {who[0]} {_title(key)}, {what}, {who[1]}"
        )
    for key, slot in slots.items():
        if (got := _describe(read.tensors[key])) != (expected := _describe(slot)):
            raise CheckpointError(
                f"{name} is of another model: {_title(key)} is {got} in the file, {expected} in this step"
            )


def refuse_groups(name: str, theirs: list[Any], ours: list[Any]) -> NoReturn:
    """Raise CheckpointError for a file with other param groups than the step; `name` is that of the file."""
    if len(theirs) != len(ours):
        raise CheckpointError(
            f"{name} has {len(theirs)} param groups, the optimizer of this step {len(ours)}"
        )
    index = next(i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1])
    raise CheckpointError(
        f"{name}: param group {index} is {theirs[index]} in the file, {ours[index]} in this step; "
        "make the optimizer as it was, then load"
    )


def _title(key: str) -> str:
    role, _, name = key.partition("/")
    return f"{role} {name!r}"


def _describe(tensor: StoredTensor | Slot) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}"


def _to_torch(tensor: StoredTensor) -> torch.Tensor:
    if not math.prod(tensor.shape):
        return torch.empty(tensor.shape, dtype=TORCH_DTYPES[tensor.dtype], device="cpu")
    return torch.frombuffer(bytearray(tensor.data), dtype=TORCH_DTYPES[tensor.dtype]).reshape(tensor.shape)
