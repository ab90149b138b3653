"""Every slot gets an address: persistent ones in the order of the text, temporaries where their time allows.

Temporaries are placed best-fit by size: the largest first, each in the smallest gap that the slots in use at
the same time leave. The peak, to the byte, is the sum of all arenas.

Two temporaries that share bytes put launches in an order. In a plan with branches (`multi_stream/memory.py`) they share none if
that order is a new one, as long as the peak stays within a limit.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

from aicf_mlir.dialects.plan import ArenaOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.passes.multi_stream.memory import ways_to_share

MORE, SMALL = 1.1, 64 << 20
"""The memory limits of branches: a factor on the peak of one branch, or a number of bytes above it; the larger limit counts."""


def aligned(size: int) -> int:
    """`size` rounded up to the alignment of slots."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class TemporaryBlock(NamedTuple):
    """A temporary to be placed: its size, aligned, and the launches between which it is in use."""

    name: str
    size: int
    first: int
    last: int

    def meets(self, other: TemporaryBlock) -> bool:
        """True if both are in use at some time."""
        return self.first <= other.last and other.first <= self.last


ORDERS: Sequence[Callable[[TemporaryBlock], tuple[int, ...]]] = (
    lambda block: (-block.size, block.first, block.last),
    lambda block: (-block.size * (block.last - block.first + 1), block.first, block.last),
    lambda block: (block.first - block.last, -block.size, block.first),
    lambda block: (block.first, -block.size, block.last),
)
"""Orders of placement: by size, by size times duration, by duration, by time. The best one wins."""


def lower_bound(blocks: Sequence[TemporaryBlock]) -> int:
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


Meets = Callable[[TemporaryBlock, TemporaryBlock], bool]
"""A predicate that is True if two blocks may not share bytes, for rules beyond `TemporaryBlock.meets`."""


def best_fit(blocks: Sequence[TemporaryBlock], meets: Meets | None = None) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, placed in the order given, and the bytes that they take in all."""
    placed: list[tuple[int, int, TemporaryBlock]] = []
    """Offset, end and block, in the order of the offsets."""
    offsets: dict[str, int] = {}
    for block in blocks:
        _, size, first, last = block
        best, best_gap, end = None, 0, 0
        for offset, behind, other in placed:
            # As Block.meets, without a call: each block is compared with all that are placed.
            if (other.last < first or last < other.first) if meets is None else not meets(other, block):
                continue
            gap = offset - end
            if gap >= size and (best is None or gap < best_gap):
                best, best_gap = end, gap
            if behind > end:
                end = behind
        at = offsets[block.name] = end if best is None else best
        insort(placed, (at, at + size, block), key=itemgetter(0))
    return offsets, max((behind for _, behind, _ in placed), default=0)


def place_blocks(blocks: Sequence[TemporaryBlock], meets: Meets | None = None) -> tuple[dict[str, int], int]:
    """Offsets of the blocks, and the bytes that they take: the best of several orders of placement."""
    bound = lower_bound(blocks)
    best = best_fit(sorted(blocks, key=ORDERS[0]), meets)
    for order in ORDERS[1:]:
        if best[1] == bound:
            break
        best = min(best, best_fit(sorted(blocks, key=order), meets), key=lambda found: found[1])
    return best


def temporaries(program: ProgramOp) -> list[TemporaryBlock]:
    """The temporaries that own memory, in the order of the text."""
    ranges = live_ranges(program.launches, program.slots)
    owners = [slot for slot in program.slots.values() if slot.role.data == "temp" and slot.alias is None]
    return [TemporaryBlock(slot.symbol, aligned(slot.nbytes), *ranges[slot.symbol]) for slot in owners]


def place_temporaries(
    program: ProgramOp, blocks: Sequence[TemporaryBlock], others: int, more: float, small: int
) -> tuple[dict[str, int], int]:
    """The offsets of the temporaries, and the bytes that they take; `others` are the bytes of everything else."""
    in_order = place_blocks(blocks)
    if not any(launch.branch_number for launch in program.launches):
        return in_order
    needed = one_branch = others + in_order[1]
    most = max(more * one_branch, one_branch + small)
    for meets in ways_to_share(program):
        found = place_blocks(blocks, meets)
        needed = others + found[1]
        if needed <= most:
            return found
    remark(
        program,
        f"branches wait for memory: to run beside each other they need {needed} bytes, and the limit is {most:.0f};"
        f" one behind the other {one_branch} do",
    )
    return in_order


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
