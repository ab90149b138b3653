"""The bytes of each arena that each slot keeps, and the launches during which it does: the content of the picture of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.analysis.placement import aligned
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp, find_program
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.roles import ARGUMENT_ROLES


@dataclass(frozen=True)
class SlotBlock:
    """The memory of a slot that owns some."""

    slot: SlotOp
    begin: int
    """The first byte in the arena."""
    end: int
    """The end of the bytes that no other slot may have: the tensor, up to the next address that is aligned."""
    held: tuple[int, int]
    """The first and the last launch during which it holds a value; (0, -1) in a plan without launches."""
    used: tuple[int, int] | None
    """The first and the last launch that touches it, itself or through a view; None: none does."""
    views: tuple[str, ...]
    """The slots that see this memory in another shape, or a part of it."""
    is_workspace: bool
    """True if it is scratch memory of one launch."""


@dataclass(frozen=True)
class Arena:
    """One block of memory, held for the whole step."""

    name: str
    """The role of its slots."""
    nbytes: int
    blocks: tuple[SlotBlock, ...]
    """The blocks in the order of the text."""


@dataclass(frozen=True)
class MemoryMap:
    """The memory of a plan."""

    program: ProgramOp
    launches: Sequence[LaunchOp]
    arenas: tuple[Arena, ...]
    """The arenas in the order of the text."""
    in_use: tuple[int, ...]
    """Bytes of temporaries that hold a value, launch by launch."""

    @property
    def peak(self) -> int:
        """Bytes of all arenas."""
        return sum(arena.nbytes for arena in self.arenas)

    @property
    def fullest(self) -> int | None:
        """The first launch with the most temporaries, in bytes; None in a plan without them."""
        most = max(self.in_use, default=0)
        return self.in_use.index(most) if most else None


def planned_program(module: ModuleOp | ProgramOp) -> ProgramOp:
    """The one plan.program of `module`, with addresses; PlanError if there is none, more, or one without."""
    program = find_program(module)
    if program.peak_bytes is None:
        message = f"@{program.symbol} has no addresses yet: run plan-memory"
        program.emit_error(message, PlanError(message))
    return program


def memory_map(module: ModuleOp | ProgramOp) -> MemoryMap:
    """The memory of the one plan of `module`. Raises PlanError as `planned_program` does."""
    program = planned_program(module)
    launches, slots = program.launches, program.slots
    used = live_ranges(launches, slots)
    scratch = {slots[launch.scratch].root for launch in launches if launch.scratch is not None}
    views: dict[str, list[str]] = {}
    for slot in slots.values():
        if slot.alias is not None:
            views.setdefault(slot.root, []).append(slot.symbol)
    blocks: dict[str, list[SlotBlock]] = {name: [] for name in program.arenas}
    for name, slot in slots.items():
        if slot.alias is not None or slot.place is None or not slot.nbytes:
            continue
        arena, begin = slot.place
        end = begin + aligned(slot.nbytes)
        held = _held(slot.role.data, used.get(name), len(launches))
        seen = tuple(views.get(name, ()))
        blocks[arena].append(SlotBlock(slot, begin, end, held, used.get(name), seen, name in scratch))
    arenas = tuple(Arena(name, op.nbytes, tuple(blocks[name])) for name, op in program.arenas.items())
    return MemoryMap(program, launches, arenas, _in_use(blocks.get("temp", ()), len(launches)))


def _held(role: str, used: tuple[int, int] | None, launches: int) -> tuple[int, int]:
    """A temporary is held while it is used, a result from its first write on, everything else all the time."""
    if role == "temp" and used is not None:
        return used
    first = 0 if used is None or role in ARGUMENT_ROLES or role == "const" else used[0]
    return first, launches - 1


def _in_use(blocks: Sequence[SlotBlock], launches: int) -> tuple[int, ...]:
    """The bytes held during each launch."""
    change = [0] * (launches + 1)
    for block in blocks:
        change[block.held[0]] += block.end - block.begin
        change[block.held[1] + 1] -= block.end - block.begin
    totals: list[int] = []
    for difference in change[:launches]:
        totals.append((totals[-1] if totals else 0) + difference)
    return tuple(totals)
