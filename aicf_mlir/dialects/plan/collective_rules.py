"""The rules of plans that concern collectives: all ranks have one order, and whatever outlives the step waits for their vote."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.ir.roles import KEPT_ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

COLLECTIVE = "all_gather"
"""The op that all ranks of a group run together."""

VOTE = "check_ranks"
"""The check that makes one status of those of all ranks."""


def ranks_of(launch: LaunchOp) -> int:
    """The number of ranks of a collective."""
    ranks = launch.attrs.data["ranks"]
    return ranks.value.data if isinstance(ranks, IntegerAttr) else 1


def check_collectives(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch that breaks a rule."""
    collectives = [
        launch for launch in program.launches if launch.op.data == COLLECTIVE and ranks_of(launch) > 1
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
    if collectives and updates and not any(set(collectives[-1].writes) & set(vote.reads) for vote in votes):
        last = collectives[-1]
        refuse(
            last,
            f"@{last.symbol} is the last collective, and no {VOTE} reads @{last.writes[0]}: the ranks vote last, so that"
            " a broken exchange updates nothing",
        )
