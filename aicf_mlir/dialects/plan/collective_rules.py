"""The rules of plans that concern collectives: all ranks have one order, and whatever outlives the step waits for their vote."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan.launch_rules import refuse

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

COLLECTIVES = ("all_gather", "all_to_all")
"""The ops that all ranks of a group run together."""

VOTE = "check_ranks"
"""The check that makes one status of those of all ranks."""


def check_collectives(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch that breaks a rule."""
    collectives = [launch for launch in program.launches if launch.op.data in COLLECTIVES]
    for early, late in pairwise(collectives):
        if not set(early.writes) & set(late.reads):
            refuse(
                late,
                f"@{late.symbol} does not wait for the collective in front of it: expected after(@{early.writes[0]}), so"
                " that all ranks have one order",
            )
    votes = [launch for launch in program.launches if launch.op.data == VOTE]
    if collectives and not any(set(collectives[-1].writes) & set(vote.reads) for vote in votes):
        last = collectives[-1]
        refuse(
            last,
            f"@{last.symbol} is the last collective, and no {VOTE} reads @{last.writes[0]}: the ranks vote last, so that"
            " a broken exchange updates nothing",
        )
