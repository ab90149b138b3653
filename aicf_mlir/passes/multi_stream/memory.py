"""Rules for temporaries that may share bytes in a plan with branches.

Sharing puts the launches that use the one before those that use the other. In the order of the text this costs nothing on one
branch; between two branches it costs their parallelism.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import TypeVar

from aicf_mlir.analysis.placement import Conflicts, TemporaryBlock, conflicts, in_order
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.branches import branches_of, reach_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import Reach, hazards
from aicf_mlir.passes.multi_stream.estimates import microseconds_of
from aicf_mlir.passes.multi_stream.scheduling import ends_of

Item = TypeVar("Item")
Users = Mapping[str, Sequence[int]]
"""The launches that use each block."""


def ways_to_share(program: ProgramOp, blocks: Sequence[TemporaryBlock]) -> Iterator[Conflicts]:
    """Yield two answers to which blocks of a plan without addresses may not share bytes; the one that needs more memory comes
    first.

    By the first, sharing makes no launch wait for another unless it already does: through `after`, or on its branch. By the
    second a launch may wait for one that is expected to be complete when it starts, so that nothing is expected to end later.
    """
    launches, slots = program.launches, program.slots
    edges = with_branch_order(hazards(launches, slots), branches_of(launches))
    users: dict[str, list[int]] = defaultdict(list)
    for index, launch in enumerate(launches):
        for name in launch.touched:
            users[slots[name].root].append(index)
    yield conflicts(blocks, waiting_anew(blocks, users, reach_of(edges), len(launches)))
    yield conflicts(blocks, waiting_longer(blocks, users, microseconds_of(program), edges))


def waiting_anew(
    blocks: Sequence[TemporaryBlock], users: Users, order: Reach, launches: int
) -> Iterator[tuple[str, list[str]]]:
    """Each block, and those before it of whose users one need not be complete when a user of the block starts."""
    ordered = in_order(blocks)
    names = [block.name for block in ordered]
    using = [0] * launches
    """The blocks that each launch uses, as a mask."""
    for number, name in enumerate(names):
        for index in users[name]:
            using[index] |= 1 << number
    for number, name in enumerate(names):
        complete = -1
        for index in users[name]:
            complete &= order.before(index)
        others = 0
        for mask in members(using, ~complete):
            others |= mask
        yield name, members(names, others & ((1 << number) - 1))


def waiting_longer(
    blocks: Sequence[TemporaryBlock], users: Users, lengths: Sequence[float], edges: Sequence[set[int]]
) -> Iterator[tuple[str, list[str]]]:
    """Each block, and those before it whose last user is expected to end after the first user of the block has started."""
    ends = ends_of(lengths, edges)
    known: list[tuple[float, str]] = []
    for block in in_order(blocks):
        start = min(ends[index] - lengths[index] for index in users[block.name])
        yield block.name, [name for _, name in known[bisect_right(known, start, key=lambda each: each[0]) :]]
        insort(known, (max(ends[index] for index in users[block.name]), block.name))


def members(items: Sequence[Item], mask: int) -> list[Item]:
    """The items whose bit in a mask is 1."""
    bits = format(mask & ((1 << len(items)) - 1), "b")[::-1]
    return list(compress(items, map("1".__eq__, bits)))
