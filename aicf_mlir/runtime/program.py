"""A plan as plain data, in the form that the runtime's executor takes. No torch, no device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.codegen.build import build
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp, find_program
from aicf_mlir.dialects.plan.copies import first_step_only
from aicf_mlir.dialects.plan.kernels import generated_kernels
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.locations import in_unicode, origin

if TYPE_CHECKING:
    from aicf_mlir._C import Code, Launch

TensorPlace = tuple[str, int, str, tuple[int, ...]]
"""A dense tensor: arena, offset in bytes, element type, shape."""

OperandPlace = TensorPlace | tuple[str, int, str, tuple[int, ...], tuple[int, ...]]
"""The place of an operand of a launch; one that is not dense also has its strides in elements."""


@dataclass(frozen=True)
class Slot:
    """A tensor that owns memory of the plan."""

    role: str
    name: str
    """The user's name, or the symbol of a slot that has no user's name."""
    arena: str
    offset: int
    """The offset in bytes."""
    dtype: str
    shape: tuple[int, ...]
    value: float | None = None
    """The value of a constant."""

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return byte_size(self.dtype, self.shape)


@dataclass(frozen=True)
class Program:
    """One step: the arenas to allocate, the slots in them, the launches to run in this order."""

    name: str
    target: str
    arenas: dict[str, int]
    """The bytes of the arenas by name."""
    slots: dict[str, Slot]
    """The slots by symbol. Aliases are not among them: launches have their shapes."""
    launches: list[Launch]

    @property
    def status(self) -> TensorPlace | None:
        """The place where the checks of the step write; None for a step without checks."""
        slots = [slot for slot in self.slots.values() if slot.role == "status"]
        return (slots[0].arena, slots[0].offset, slots[0].dtype, slots[0].shape) if slots else None

    @property
    def peak(self) -> int:
        """The bytes of all arenas."""
        return sum(self.arenas.values())


def load_program(module: ModuleOp | ProgramOp) -> Program:
    """Return the plan in `module` as plain data. Raises PlanError for a plan without addresses."""
    program = find_program(module)
    if program.peak is None:
        raise PlanError(f"@{program.symbol} has no addresses yet; run plan-memory first")
    slots = program.slots
    kernels = generated_kernels(program)
    codes = build(kernels.values())
    alone = first_step_only(program.launches, slots)
    positions = {launch.symbol: position for position, launch in enumerate(program.launches)}
    return Program(
        name=program.symbol,
        target=program.target.data,
        arenas={name: arena.nbytes for name, arena in program.arenas.items()},
        slots={symbol: _slot(slot) for symbol, slot in slots.items() if slot.alias is None},
        launches=[_launch(launch, slots, positions, codes, alone) for launch in program.launches],
    )


def _slot(slot: SlotOp) -> Slot:
    arena, offset, dtype, shape = _place(slot)
    name = slot.symbol if slot.label is None else slot.label.data
    value = None if slot.value is None else slot.value.value.data
    return Slot(slot.role.data, name, arena, offset, dtype, shape, value)


def _place(slot: SlotOp) -> TensorPlace:
    if slot.place is None:
        raise PlanError(f"@{slot.symbol} has no address; run plan-memory first")
    return *slot.place, *slot.spec


def _operand_place(slot: SlotOp) -> OperandPlace:
    arena, offset, dtype, shape = _place(slot)
    if (layout := slot.layout) is None:
        return arena, offset, dtype, shape
    return arena, offset + slot.extent[0], dtype, shape, layout.strides


def _launch(
    launch: LaunchOp,
    slots: Mapping[str, SlotOp],
    positions: Mapping[str, int],
    codes: Mapping[str, Code],
    alone: Collection[LaunchOp],
) -> Launch:
    workspace = None
    if launch.scratch is not None:
        arena, offset, *_ = _place(slots[launch.scratch])
        workspace = (arena, offset, slots[launch.scratch].nbytes)
    return {
        "symbol": launch.symbol,
        "op": launch.op.data,
        "kernel_id": launch.kernel_id.data,
        "inputs": [_operand_place(slots[name]) for name in launch.reads],
        "outputs": [_operand_place(slots[name]) for name in launch.writes],
        "counts": launch.counts,
        "attrs": launch.values,
        "after": [positions[name] for name in launch.waits_for],
        "branch": launch.branch_number,
        "first_step_only": launch in alone,
        "workspace": workspace,
        "predicate": None if launch.predicate_slot is None else _place(slots[launch.predicate_slot]),
        "origin": in_unicode(str(origin(launch) or "")),
        "code": codes.get(launch.kernel_id.data),
    }
