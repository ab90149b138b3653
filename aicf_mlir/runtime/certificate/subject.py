"""A bound plan under examination: its memory as NumPy arrays, its launches with their source, its poison."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from aicf_mlir import _C
from aicf_mlir.dialects.plan import LaunchOp, find_program
from aicf_mlir.dialects.plan.differences import PlanComparison
from aicf_mlir.interpreters.numerics import FLOATS, NUMPY_TYPES, Array, places, widen
from aicf_mlir.ir.layouts import Layout
from aicf_mlir.ir.locations import origin
from aicf_mlir.ir.roles import UNDEFINED_ROLES
from aicf_mlir.runtime.certificate.report import Culprit
from aicf_mlir.runtime.plan_file import PlanFile
from aicf_mlir.runtime.program import Program, Slot

SlotSpec: TypeAlias = "_C.Slot"
"""The arena, offset in bytes, element type, shape, and strides if the slot is not dense."""

Saved = Mapping[str, _C.Arena]
"""Copies of arenas by name."""


@dataclass(frozen=True)
class Subject:
    """A step as it is bound. It works on the arenas alone, and neither copies nor publishes torch's objects."""

    name: str
    program: Program
    """The bound program."""
    text: Program
    """The program that the plan's text describes, with the same addresses where memory is shared with other steps."""
    stages: Mapping[str, ModuleOp]
    """The step after each stage of the pipeline."""
    arenas: Mapping[str, _C.Arena]
    executor: _C.Executor
    """The executor with the captured graph."""
    device: str
    stream: int
    plan_file: PlanFile | None = None
    """The source of the plan, if it is not the step's own."""
    told: Callable[[str], Sequence[str]] | None = None
    """What each rank of several says: those that do not go the same way would wait for each other. None for one process."""

    @property
    def comparison(self) -> PlanComparison | None:
        """The comparison of the plan with the step's own, if it is not that."""
        return None if self.plan_file is None else self.plan_file.comparison

    def place_in_own_plan(self, index: int) -> int | None:
        """Return the position of the launch at `index` in the step's own plan, by its name; None if it is not there."""
        if (comparison := self.comparison) is None:
            return index
        return comparison.places.get(self.launch_ops[index].symbol)

    @cached_property
    def launch_ops(self) -> list[LaunchOp]:
        """The launches of the plan's text."""
        return find_program(self.stages["plan"]).launches

    def culprit(self, index: int) -> Culprit:
        """Return the launch at `index` as a culprit."""
        op = self.launch_ops[index]
        return Culprit(op.symbol, op.op.data, self.program.launches[index]["kernel_id"], source_of(op))

    def anywhere(self, found: bool) -> bool:
        """Return True if something was found on any rank; all ranks call it together."""
        return found if self.told is None else any(self.told("found" if found else ""))

    # ---- memory ----

    @property
    def kept(self) -> list[str]:
        """The arenas with meaning after a step: all but the temporaries."""
        return [name for name in self.arenas if name != "temp"]

    def save(self) -> Saved:
        """Copies of all arenas that outlive a launch."""
        copies = {name: _C.Arena(self.device, self.arenas[name].nbytes) for name in self.kept}
        for name, copy in copies.items():
            copy.copy_from(self.arenas[name], self.stream)
        return copies

    def restore(self, saved: Saved) -> None:
        """Restore the memory that `save` copied."""
        for name, copy in saved.items():
            self.arenas[name].copy_from(copy, self.stream)

    def poison(self, byte: int) -> None:
        """Fill all memory that has no value before a step: temporaries, workspaces, outputs, gradients."""
        for name in UNDEFINED_ROLES:
            if name in self.arenas:
                self.arenas[name].fill(byte, self.stream)

    def bytes_of(self, name: str) -> bytes:
        """Return the contents of an arena."""
        return self.arenas[name].read(0, self.arenas[name].nbytes, self.stream)

    def compared(self) -> Iterator[tuple[str, int, int]]:
        """Yield arena, offset and size of all memory with meaning after a step, including the space between lasting slots."""
        for name in self.kept:
            if name not in UNDEFINED_ROLES:
                yield name, 0, self.arenas[name].nbytes
        for slot in self.program.slots.values():
            if slot.role in UNDEFINED_ROLES and slot.role != "temp":
                yield slot.arena, slot.offset, slot.nbytes

    def digest(self) -> bytes:
        """Return a digest of all memory with meaning after a step."""
        total = hashlib.sha256()
        for name, offset, nbytes in self.compared():
            total.update(self.arenas[name].read(offset, nbytes, self.stream))
        return total.digest()

    def read(self, place: SlotSpec) -> Array:
        """Return a copy of the tensor at a place."""
        arena, offset, dtype = place[:3]
        kind, layout = NUMPY_TYPES[dtype], layout_of(place)
        data = self.arenas[arena].read(offset, layout.end * kind.itemsize, self.stream)
        return places(np.frombuffer(data, kind), layout)

    def write(self, slot: Slot, value: Array) -> None:
        """Fill a slot."""
        self.arenas[slot.arena].write(slot.offset, np.ascontiguousarray(value).tobytes(), self.stream)

    # ---- hyperparameters ----

    @cached_property
    def host_scalars(self) -> list[Slot]:
        """The host scalars that the host writes and no launch does, in the order of the plan; and frozen numbers.

        A Python number that is a host scalar is a frozen tensor of this kind: 0-d, of a float type.
        """
        written = {place[:2] for launch in self.program.launches for place in launch["outputs"]}
        slots = self.program.slots.values()
        numbers = [s for s in slots if s.role == "buffer" and s.shape == () and s.dtype in FLOATS]
        scalars = [s for s in slots if s.role == "host_scalar"]
        return [s for s in scalars + numbers if (s.arena, s.offset) not in written]

    def perturb(self, step: int) -> None:
        """Give every host scalar of the host a value other than the compiled one, and a new one at each step.

        A free pin (NaN) stays free at even steps and is pinned at odd ones.
        """
        for index, slot in enumerate(self.host_scalars):
            value = widen(self.read(place_of(slot)))
            offset = 2.0**-6 * (1 + index / 8)
            if not np.isnan(value).any():
                value = value * 0.75 + offset
            elif step % 2:
                value = np.full_like(value, 1 + offset)
            self.write(slot, value.astype(NUMPY_TYPES[slot.dtype]))

    # ---- running ----

    def run(self) -> None:
        """Run one eager step."""
        self.executor.run(self.stream)

    def replay(self, n: int = 1) -> None:
        """Run `n` steps by the captured graph."""
        self.executor.replay(n, self.stream)

    def first(self, count: int) -> _C.Executor:
        """Return an executor of the first `count` launches over the same memory."""
        return _C.Executor(self.device, self.arenas, self.program.launches[:count])

    def alone(self, index: int) -> _C.Executor:
        """Return an executor of one launch over the same memory: it waits for no other."""
        launch = self.program.launches[index].copy()
        launch.update({"after": [], "branch": 0})
        return _C.Executor(self.device, self.arenas, [launch])


def layout_of(place: SlotSpec) -> Layout:
    """Return the layout of the elements from the offset on."""
    shape = tuple(place[3])
    return Layout.dense(shape) if len(place) == 4 else Layout(shape, tuple(place[4]))


def place_of(slot: Slot) -> SlotSpec:
    """Return the place of a slot."""
    return slot.arena, slot.offset, slot.dtype, slot.shape


def source_of(op: Operation) -> str:
    """Return the user's line and layer that an op comes from."""
    return str(origin(op) or "no source line")
