"""A plan, launch by launch in memory of which each byte knows who wrote it: what is free holds garbage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.copies import COPY, first_step_only
from aicf_mlir.dialects.scalar import bodies_of
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import Array, round_to
from aicf_mlir.interpreters.plan import view
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.roles import ARGUMENT_ROLES, RETURNED_ROLES, UNDEFINED_ROLES, UPDATED_ROLES
from aicf_mlir.ir.signature import Key

NOBODY = -1


class Places:
    """The bytes of the slots of a plan, said by nothing but their types, layouts and addresses."""

    def __init__(self, program: ProgramOp):
        self.slots = program.slots
        self.first: dict[str, int] = {}
        """Of each arena the first byte, all of them side by side."""
        end = 0
        for name, arena in program.arenas.items():
            self.first[name] = end
            end += arena.nbytes
        self.nbytes = end
        self._bytes: dict[str, Array | slice] = {}
        self._met: dict[tuple[str, str], bool] = {}

    def __getitem__(self, name: str) -> Array | slice:
        """The numbers of the bytes of a slot's elements."""
        if name not in self._bytes:
            self._bytes[name] = self._of(self.slots[name])
        return self._bytes[name]

    def _of(self, slot: SlotOp) -> Array | slice:
        assert slot.place is not None
        arena, offset = slot.place
        element, shape = slot.spec
        size, begin = byte_size(element, (1,)), self.first[arena] + offset
        if slot.layout is None or not math.prod(shape):
            return slice(begin, begin + size * math.prod(shape))
        at = np.full((), slot.layout.offset, np.int64)
        for extent, stride in zip(slot.layout.shape, slot.layout.strides, strict=True):
            at = at[..., None] + stride * np.arange(extent)
        return (at.reshape(-1, 1) * size + np.arange(size)).reshape(-1) + begin

    def meet(self, one: str, other: str) -> bool:
        """Whether two slots have a byte in common."""
        if (one, other) not in self._met:
            a, b = (
                (each.start, each.stop) if isinstance(each, slice) else (each.min(), each.max() + 1)
                for each in (self[one], self[other])
            )
            found = bool(a[0] < b[1] and b[0] < a[1] and a[0] < a[1] and b[0] < b[1])
            if found:
                parts = [
                    np.arange(each.start, each.stop) if isinstance(each, slice) else each
                    for each in (self[one], self[other])
                ]
                found = bool(np.isin(*parts).any())
            self._met[one, other] = found
        return self._met[one, other]


class Walk:
    """The launches of one plan, run by their meaning."""

    def __init__(self, program: ProgramOp, rng: np.random.Generator):
        self.program, self.rng, self.slots = program, rng, program.slots
        self.places, self.bodies = Places(program), bodies_of(program)
        self.memory = bytearray(b"\xff" * self.places.nbytes)
        self.bytes = np.frombuffer(self.memory, np.uint8)
        self.owner = np.full(self.places.nbytes, NOBODY, np.int32)
        self.number = {name: number for number, name in enumerate(self.slots)}
        arenas = {
            name: memoryview(self.memory)[first : first + program.arenas[name].nbytes]
            for name, first in self.places.first.items()
        }
        self.tensors = {name: view(slot, arenas) for name, slot in self.slots.items()}  # pyright: ignore[reportArgumentType]

    def fill(self, values: Mapping[Key, Array]) -> None:
        """Write the arguments and the constants."""
        for name, slot in self.slots.items():
            if slot.alias is not None:
                continue
            if slot.value is not None:
                self.tensors[name][...] = round_to(np.asarray(slot.value.value.data), slot.spec[0])
            elif slot.role.data in ARGUMENT_ROLES:
                assert slot.label is not None
                self.tensors[name][...] = values[slot.role.data, slot.label.data]
            else:
                continue
            self.owner[self.places[name]] = self.number[name]

    def forget(self, names: Sequence[str]) -> None:
        """Put garbage in the place of what these slots, which own memory, still hold."""
        for name in names:
            where = self.places[name]
            own = self.owner[where] == self.number[name]
            self.bytes[where] = np.where(own, self.garbage(), self.bytes[where])
            self.owner[where] = np.where(own, NOBODY, self.owner[where])

    def garbage(self) -> np.uint8:
        """A byte of what nobody wrote: those of NaN, or any."""
        return np.uint8((0xFF, 0x7F, self.rng.integers(256))[self.rng.integers(3)])

    def step(self, again: bool, order: Sequence[LaunchOp] | None = None) -> None:
        """One step: the first, or one `again`, of a replay. Temporaries, results and scratch hold garbage where nobody wrote."""
        launches = list(self.program.launches if order is None else order)
        alone = first_step_only(self.program.launches, self.slots)
        launches = [each for each in launches if not (again and each in alone)]
        owners = [slot for slot in self.slots.values() if slot.alias is None]
        lost = [role for role in UNDEFINED_ROLES if not (again and role == COPY)]
        self.forget([slot.symbol for slot in owners if slot.role.data in lost])
        left = {slot.symbol: 0 for slot in owners if slot.role.data == "temp"}
        for launch in launches:
            for root in self.roots(launch):
                left[root] = left.get(root, 0) + 1
        for launch in launches:
            self.launch(launch)
            for root in self.roots(launch):
                left[root] -= 1
                if not left[root] and self.slots[root].role.data == "temp":
                    self.forget([root])

    def roots(self, launch: LaunchOp) -> set[str]:
        """The slots whose memory a launch touches."""
        return {self.slots[name].root for name in launch.touched}

    def launch(self, launch: LaunchOp) -> None:
        """Run one launch, unless its predicate says otherwise."""
        read = [*launch.reads, *([] if launch.predicate_slot is None else [launch.predicate_slot])]
        for name in read:
            root, owner = self.number[self.slots[name].root], self.owner[self.places[name]]
            if (owner != root).any():
                wrong = {*owner.tolist()} - {root}
                names = [*self.slots, "nobody"]
                who = ", ".join(f"@{names[number]}" for number in sorted(wrong))
                raise AssertionError(f"@{launch.symbol} reads bytes of @{name} that {who} has written")
        if launch.predicate_slot is not None and self.tensors[launch.predicate_slot].flat[0] != 0:
            return
        if launch.scratch is not None:
            where = self.places[launch.scratch]
            self.bytes[where] = self.garbage()
            self.owner[where] = self.number[launch.scratch]
        types = [self.slots[name].spec for name in launch.writes]
        given = [self.bodies[symbol] for symbol in launch.bodies]
        inputs = [self.tensors[name].copy() for name in launch.reads]
        results = meaning(launch.op.data, inputs, launch.values, types, counts=launch.counts, bodies=given)
        for name, result in zip(launch.writes, results, strict=True):
            self.tensors[name][...] = result
            self.owner[self.places[name]] = self.number[self.slots[name].root]

    def results(self) -> dict[Key, Array]:
        """Copies of all that a step returns or updates, by role and name."""
        kept = (*RETURNED_ROLES, *UPDATED_ROLES)
        return {
            (slot.role.data, slot.label.data): self.tensors[name].copy()
            for name, slot in self.slots.items()
            if slot.label is not None and slot.role.data in kept
        }


def conflicts(program: ProgramOp) -> list[str]:
    """The launches that may run at the same time, by `after`, though one writes bytes that the other touches."""
    places, launches = Places(program), program.launches
    number = {launch.symbol: at for at, launch in enumerate(launches)}
    before: list[int] = []
    used: list[tuple[set[str], set[str]]] = []
    found: list[str] = []
    for launch in launches:
        mask = 0
        for name in launch.waits_for:
            mask |= before[number[name]] | 1 << number[name]
        before.append(mask)
        written = {*launch.writes, *([] if launch.scratch is None else [launch.scratch])}
        read = {*launch.reads, *([] if launch.predicate_slot is None else [launch.predicate_slot])}
        for other, (theirs, seen) in enumerate(used):
            if mask >> other & 1:
                continue
            pairs = [*product(written, theirs | seen), *product(read, theirs)]
            if any(places.meet(*pair) for pair in pairs):
                found.append(f"@{launch.symbol} and @{launches[other].symbol} are in no order")
        used.append((written, read))
    return found
