"""The rules of plans that concern collectives: all ranks have one order, and whatever outlives the step waits for their vote."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.ir.registry import checks
from aicf_mlir.ir.roles import KEPT_ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

ALL_TO_ALL = "all_to_all"
"""The collective that gives each rank something else."""

COLLECTIVES = ("all_gather", "all_gather_status", "all_reduce", "all_reduce_status", ALL_TO_ALL)
"""The ops that all ranks of a group run together."""

VOTE = "check_ranks"
"""The check that makes one status of those of all ranks."""

OWN_ROLES = ("input", "buffer")
"""The roles of what each rank has for itself: its batch, and what it draws its random numbers from."""


def ranks_of(launch: LaunchOp) -> int:
    """The number of ranks of a collective."""
    ranks = launch.attrs.data["ranks"]
    return ranks.value.data if isinstance(ranks, IntegerAttr) else 1


def check_collectives(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch that breaks a rule."""
    collectives = [
        launch for launch in program.launches if launch.op.data in COLLECTIVES and ranks_of(launch) > 1
    ]
    for early, late in pairwise(collectives):
        if not set(early.writes) & set(late.reads):
            refuse(
                late,
                f"@{late.symbol} does not wait for the collective in front of it: expected after(@{early.writes[0]}), so"
                " that all ranks have one order",
            )
    votes = [launch for launch in program.launches if launch.op.data == VOTE]
    slots = program.slots
    updates = any(
        slots[name].role.data in KEPT_ROLES for launch in program.launches for name in launch.writes
    )
    if not collectives or not updates:
        return
    last = collectives[-1]
    voted = [vote for vote in votes if set(last.writes) & set(vote.reads)]
    if not voted:
        refuse(
            last,
            f"@{last.symbol} is the last collective, and no {VOTE} reads @{last.writes[-1]}: the ranks vote last, so that"
            " a broken exchange updates nothing",
        )
    if not set(voted[0].reads) & set(last.reads):
        refuse(
            voted[0],
            f"@{voted[0].symbol} reads @{voted[0].reads[0]}, which @{last.symbol} does not gather: no other rank would hear"
            " of it",
        )
    check_late(program, last)


def check_late(program: ProgramOp, last: LaunchOp) -> None:
    """Raise VerifyException at a check after the last collective that is of what a rank has for itself."""
    slots, is_late = program.slots, False
    own = {slot.root for slot in slots.values() if slot.role.data in OWN_ROLES}
    for launch in program.launches:
        read = next((name for name in launch.reads if slots[name].root in own), None)
        if is_late and read is not None and launch.op.data in checks() and launch.op.data != VOTE:
            refuse(
                launch,
                f"@{launch.symbol} checks @{read}, which each rank has for itself, after @{last.symbol}, the last collective:"
                " no other rank would hear of it",
            )
        is_late |= launch is last
        if launch.op.data in checks():
            continue
        for slot in (slots[name] for name in launch.writes):
            if launch.op.data == ALL_TO_ALL or (read is not None and launch.op.data not in COLLECTIVES):
                own.add(slot.root)
            elif slot.root == slot.symbol:
                own.discard(slot.root)
