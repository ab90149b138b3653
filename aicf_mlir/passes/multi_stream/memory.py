"""Rules for temporaries that may share bytes in a plan with branches.

Sharing puts the launches that use the one before those that use the other. In the order of the text this costs nothing on one
branch; between two branches it costs their parallelism.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.branches import branches_of, reach_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import hazards
from aicf_mlir.passes.multi_stream.estimates import microseconds_of
from aicf_mlir.passes.multi_stream.scheduling import ends_of

if TYPE_CHECKING:
    from aicf_mlir.analysis.placement import TemporaryBlock


def ways_to_share(program: ProgramOp) -> Iterator[Callable[[TemporaryBlock, TemporaryBlock], bool]]:
    """Yield two predicates that are True if two temporaries of a plan without addresses may not share bytes; the one that needs
    more memory comes first.

    By the first, sharing makes no launch wait for another unless it already does: through `after`, or on its branch. By the
    second a launch may wait for one that is expected to be complete when it starts, so that nothing is expected to end later.
    """
    launches, slots = program.launches, program.slots
    edges = with_branch_order(hazards(launches, slots), branches_of(launches))
    users: dict[str, list[int]] = defaultdict(list)
    for index, launch in enumerate(launches):
        for name in launch.touched:
            users[slots[name].root].append(index)
    order = reach_of(edges)
    masks = {name: sum(1 << index for index in set(some)) for name, some in users.items()}
    complete: dict[str, int] = {}
    for name, some in users.items():
        complete[name] = order.before(some[0])
        for index in some:
            complete[name] &= order.before(index)

    def wait_anew(one: TemporaryBlock, other: TemporaryBlock) -> bool:
        early, late = (one, other) if one.first < other.first else (other, one)
        return one.meets(other) or bool(masks[early.name] & ~complete[late.name])

    yield wait_anew
    lengths = microseconds_of(program)
    ends = ends_of(lengths, edges)
    last = {name: max(ends[index] for index in some) for name, some in users.items()}
    first = {name: min(ends[index] - lengths[index] for index in some) for name, some in users.items()}

    def wait_longer(one: TemporaryBlock, other: TemporaryBlock) -> bool:
        early, late = (one, other) if one.first < other.first else (other, one)
        return one.meets(other) or last[early.name] > first[late.name]

    yield wait_longer
