"""Every slot gets an address: persistent ones in the order of the text, temporaries where their time allows.

Temporaries are placed best-fit by size: the largest first, each in the smallest gap that the slots in use at
the same time leave. The peak, to the byte, is the sum of all arenas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf_mlir.dialects.plan import ArenaOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.ir.roles import ROLES


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of slots."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Block(NamedTuple):
    """A temporary to be placed: its size, aligned, and the launches between which it is in use."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        """Whether both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


ORDERS: Sequence[Callable[[Block], tuple[int, ...]]] = (
    lambda block: (-block.size, block.first, block.last),
    lambda block: (-block.size * (block.last - block.first + 1), block.first, block.last),
    lambda block: (block.first - block.last, -block.size, block.first),
    lambda block: (block.first, -block.size, block.last),
)
"""Orders of placement: by size, by size times duration, by duration, by time. The best one wins."""


def lower_bound(blocks: Sequence[Block]) -> int:
    """The most bytes that are in use at once: no placement needs less."""
    change: dict[int, int] = {}
    for block in blocks:
        change[block.first] = change.get(block.first, 0) + block.size
        change[block.last + 1] = change.get(block.last + 1, 0) - block.size
    most = held = 0
    for time in sorted(change):
        held += change[time]
        most = max(most, held)
    return most


def best_fit(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, placed in the order given, and the bytes that they take in all."""
    placed: list[tuple[int, Block]] = []
    offsets: dict[str, int] = {}
    for block in blocks:
        taken = sorted((offset, other.size) for offset, other in placed if other.meets(block))
        best, best_gap, end = None, 0, 0
        for offset, size in taken:
            gap = offset - end
            if gap >= block.size and (best is None or gap < best_gap):
                best, best_gap = end, gap
            end = max(end, offset + size)
        offsets[block.name] = end if best is None else best
        placed.append((offsets[block.name], block))
    return offsets, max((offset + block.size for offset, block in placed), default=0)


def place_blocks(blocks: Sequence[Block]) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, and the bytes that they take: the best of several orders of placement."""
    bound = lower_bound(blocks)
    best = best_fit(sorted(blocks, key=ORDERS[0]))
    for order in ORDERS[1:]:
        if best[1] == bound:
            break
        best = min(best, best_fit(sorted(blocks, key=order)), key=lambda found: found[1])
    return best


def temporaries(program: ProgramOp) -> list[Block]:
    """The temporaries that own memory, in the order of the text."""
    ranges = live_ranges(program.launches, program.slots)
    owners = [slot for slot in program.slots.values() if slot.role.data == "temp" and slot.alias is None]
    return [Block(slot.symbol, aligned(slot.nbytes), *ranges[slot.symbol]) for slot in owners]


def place_persistent(slots: Sequence[SlotOp]) -> tuple[dict[str, int], int]:
    """Offsets one behind the other, and the bytes in all."""
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


def plan(program: ProgramOp) -> None:
    """Write arenas, offsets, live ranges, peak, and the order that shared memory asks for."""
    slots = program.slots
    for arena in program.arenas.values():
        arena.detach()
    arenas: list[ArenaOp] = []
    for role in ROLES:
        owners = [slot for slot in slots.values() if slot.role.data == role and slot.alias is None]
        if not owners:
            continue
        if role == "temp":
            blocks = temporaries(program)
            for block in blocks:
                slots[block.name].set_live(block.first, block.last)
            offsets, size = place_blocks(blocks)
        else:
            offsets, size = place_persistent(owners)
        write_places(slots, role, offsets)
        arenas.append(ArenaOp(role, size))
    block, first = program.body.block, program.body.block.first_op
    if first is not None:
        block.insert_ops_before(arenas, first)
    program.peak = IntegerAttr(sum(arena.nbytes for arena in arenas), i64)
    order_launches(program.launches, slots)


@dataclass(frozen=True)
class PlanMemoryPass(ModulePass):
    """Give every slot an address: arenas, offsets, live ranges and the exact peak of each plan.program."""

    name = "plan-memory"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if isinstance(program, ProgramOp):
                plan(program)
