"""The actual places of the slots that plans share: a plan is laid out alone, and then moved to the existing memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import torch

from aicf_mlir import _C
from aicf_mlir.ir.roles import SHARED_ROLES
from aicf_mlir.runtime.program import Program, Slot, TensorPlace
from aicf_mlir.runtime.tensors import view

if TYPE_CHECKING:
    from aicf_mlir._C import Launch

Key = tuple[str, str]
"""Role and name of a slot."""

LITERALS = "literals"
"""The arena of a plan's own literals."""

ALIGNMENT = 256
"""The alignment of every slot of a plan in bytes."""


def shared_slots(program: Program) -> dict[Key, Slot]:
    """Return the slots that outlive a step, by role and name."""
    return {(slot.role, slot.name): slot for slot in program.slots.values() if slot.role in SHARED_ROLES}


class Placement:
    """The shared slots of one plan, and the actual place of each."""

    def __init__(self, planned: Mapping[Key, Slot], slots: Mapping[Key, Slot]):
        """Take the slots as `planned`, and the actual places of at least these in `slots`."""
        self._planned = planned
        self._slots = {key: slots[key] for key in planned}
        self._moves = self._planned != self._slots
        self._order: dict[str, tuple[list[int], list[Key]]] = {}
        """The offsets of the slots in order, and their keys, by arena of the plan.

        A slot without elements may be anywhere, even inside another one: it is found only if no other slot matches.
        """
        with_elements = {slot.arena for slot in planned.values() if slot.nbytes}
        found = [item for item in planned.items() if item[1].nbytes or item[1].arena not in with_elements]
        for key, slot in sorted(found, key=lambda item: item[1].offset):
            starts, keys = self._order.setdefault(slot.arena, ([], []))
            starts.append(slot.offset)
            keys.append(key)

    def __call__(self, program: Program) -> Program:
        """Return `program` with its shared slots at their actual places; itself if nothing has moved."""
        if not self._moves:
            return program
        launches: list[Launch] = [
            {
                **launch,
                "inputs": [self._placed(place) for place in launch["inputs"]],  # pyright: ignore[reportArgumentType]
                "outputs": [self._placed(place) for place in launch["outputs"]],  # pyright: ignore[reportArgumentType]
            }
            for launch in program.launches
        ]
        slots = {
            symbol: self._slots.get((slot.role, slot.name), slot) for symbol, slot in program.slots.items()
        }
        return replace(program, launches=launches, slots=slots)

    def _placed(self, place: TensorPlace) -> TensorPlace:
        """Return the actual place of an operand of a launch."""
        arena, offset, *spec = place
        if arena not in SHARED_ROLES:
            return place
        starts, keys = self._order[arena]
        key = keys[max(bisect_right(starts, offset) - 1, 0)]
        planned, slot = self._planned[key], self._slots[key]
        if not prod(place[3]):
            return slot.arena, slot.offset, *spec  # pyright: ignore[reportReturnType]
        return slot.arena, slot.offset + offset - planned.offset, *spec  # pyright: ignore[reportReturnType]


def literal_memory(
    device: str, planned: Mapping[Key, Slot], literals: Mapping[str, torch.Tensor]
) -> tuple[dict[Key, Slot], dict[str, _C.Arena]]:
    """Return memory with the literals of one plan: the place of each, and the arena by name; no arena if there are
    none.

    Shape groups differ in values computed while tracing, for example torch.arange(batch size).
    """
    slots: dict[Key, Slot] = {}
    end = 0
    for name in (name for name in literals if ("buffer", name) in planned):
        slot = planned["buffer", name]
        slots["buffer", name] = replace(slot, arena=LITERALS, offset=end)
        end += -(-slot.nbytes // ALIGNMENT) * ALIGNMENT
    if not slots:
        return {}, {}
    arena = _C.Arena(device, end)
    for (_, name), slot in slots.items():
        view(arena, slot.offset, slot.dtype, slot.shape).copy_(literals[name])
    return slots, {LITERALS: arena}
