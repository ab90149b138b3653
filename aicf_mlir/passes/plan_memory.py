"""Every slot gets an address: persistent ones in the order of the text, temporaries where their time allows.

Temporaries are placed best-fit, in the best of several orders (`analysis/placement.py`). The peak, to the byte, is the sum of all
arenas.

Two temporaries that share bytes put launches in an order. In a plan with branches (`multi_stream/memory.py`) they share none if
that order is a new one, as long as the peak stays within a limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf_mlir.analysis.placement import Conflicts, TemporaryBlock, aligned, conflicts, place_blocks
from aicf_mlir.dialects.plan import ArenaOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.passes.multi_stream.memory import ways_to_share

MORE, SMALL = 1.1, 64 << 20
"""The memory limits of branches: a factor on the peak of one branch, or a number of bytes above it; the larger limit counts."""
MUCH = 4 << 20
"""Bytes by which a way to share memory must need less than the one before it, to be taken though that is within the limit."""


def temporaries(program: ProgramOp) -> list[TemporaryBlock]:
    """The temporaries that own memory, in the order of the text."""
    ranges = live_ranges(program.launches, program.slots)
    owners = [slot for slot in program.slots.values() if slot.role.data == "temp" and slot.alias is None]
    return [TemporaryBlock(slot.symbol, aligned(slot.nbytes), *ranges[slot.symbol]) for slot in owners]


def place_temporaries(
    program: ProgramOp, blocks: Sequence[TemporaryBlock], others: int, more: float, small: int
) -> tuple[dict[str, int], int]:
    """The offsets of the temporaries, and the bytes that they take; `others` are the bytes of everything else."""
    one_after_other = conflicts(blocks)
    if not any(launch.branch_number for launch in program.launches):
        return place_blocks(blocks, one_after_other)
    needed = one_branch = others + place_blocks(blocks, one_after_other, improve=False)[1]
    most = max(more * one_branch, one_branch + small)
    best: tuple[int, Conflicts] | None = None
    for apart in ways_to_share(program, blocks):
        needed = others + place_blocks(blocks, apart, improve=False)[1]
        if needed <= most and (best is None or needed <= best[0] - MUCH):
            best = needed, apart
        if needed <= one_branch + MUCH:
            break
    if best is not None:
        return place_blocks(blocks, best[1])
    remark(
        program,
        f"branches wait for memory: to run beside each other they need {needed} bytes, and the limit is {most:.0f};"
        f" one behind the other {one_branch} do",
    )
    return place_blocks(blocks, one_after_other)


def place_persistent(slots: Sequence[SlotOp]) -> tuple[dict[str, int], int]:
    """The offsets of slots one after the other, and the bytes in all."""
    offsets: dict[str, int] = {}
    end = 0
    for slot in slots:
        offsets[slot.symbol] = end
        end += aligned(slot.nbytes)
    return offsets, end


def write_places(slots: Mapping[str, SlotOp], role: str, offsets: Mapping[str, int]) -> None:
    """Write the address of each owner of memory on it and on its aliases."""
    for slot in slots.values():
        if slot.role.data == role:
            slot.set_place(role, offsets[slot.root])


def plan(program: ProgramOp, more: float = MORE, small: int = SMALL) -> None:
    """Write arenas, offsets, live ranges, peak, and the order that shared memory requires."""
    slots = program.slots
    for arena in program.arenas.values():
        arena.detach()
    for slot in slots.values():
        slot.arena = slot.offset = None
    places: dict[str, tuple[dict[str, int], int]] = {}
    for role in ROLES:
        owners = [slot for slot in slots.values() if slot.role.data == role and slot.alias is None]
        if owners and role != "temp":
            places[role] = place_persistent(owners)
    if blocks := temporaries(program):
        for block in blocks:
            slots[block.name].set_live(block.first, block.last)
        others = sum(size for _, size in places.values())
        places["temp"] = place_temporaries(program, blocks, others, more, small)
    arenas = [ArenaOp(role, places[role][1]) for role in ROLES if role in places]
    for role, (offsets, _) in places.items():
        write_places(slots, role, offsets)
    block, first = program.body.block, program.body.block.first_op
    if first is not None:
        block.insert_ops_before(arenas, first)
    program.peak = IntegerAttr(sum(arena.nbytes for arena in arenas), i64)
    order_launches(program.launches, slots)


@dataclass(frozen=True)
class PlanMemoryPass(ModulePass):
    """Give every slot an address: arenas, offsets, live ranges and the exact peak of each plan.program.

    Branches take at most `more` times the peak of launches that run one after the other, or `small` bytes above it. If that is
    not enough they wait for memory.
    """

    name = "plan-memory"

    more: float = MORE
    small: int = SMALL

    def __post_init__(self) -> None:
        if not (self.more >= 1 and self.small >= 0):
            raise ValueError(f"expected more >= 1 and small >= 0, got more={self.more:g} small={self.small}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if isinstance(program, ProgramOp):
                plan(program, self.more, self.small)
