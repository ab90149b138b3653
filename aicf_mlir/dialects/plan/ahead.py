"""The operands that a launch may read before its wait for the launch before it: `ahead`, operands of generated products by
number.

A captured graph starts a kernel with a programmatic edge when all blocks of the previous launch have passed their own wait. All
launches before that one are then complete (csrc/device/cuda_dependent.cuh), and their results may be read. The text determines
the previous launch: the one before, on its branch and in all, for a launch gets a programmatic edge from one of these or none.
Launches that a replay leaves out, or that have nothing to write, are passed over, and their writes count too. Before the first
launch is the last launch of an earlier step, or of another plan, so only memory that no plan writes is read ahead there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan.copies import first_step_only, roots
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.ir.roles import READ_ONLY_ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

AHEAD = "ahead"
"""The attribute."""


def settled(
    launches: Sequence[LaunchOp], number: int, slots: Mapping[str, SlotOp], alone: Collection[LaunchOp]
) -> frozenset[int]:
    """The operands of a launch, by number, that no launch writes which may still run when it is started; `alone`: the launches
    that are `first_step_only`.
    """
    launch = launches[number]
    written, first = set[str](), False
    for before in (
        launches[:number],
        [other for other in launches[:number] if other.branch_number == launch.branch_number],
    ):
        at_start = True
        for other in reversed(before):
            own = [*other.writes, *([] if other.scratch is None else [other.scratch])]
            written |= roots(own, slots)
            empty = all(prod(slots[name].spec[1]) == 0 for name in other.writes)
            if not empty and other not in alone:
                at_start = False
                break
        first = first or at_start
    return frozenset(
        index
        for index, name in enumerate(launch.reads)
        if (root := slots[name].root) not in written
        and not (first and slots[root].role.data not in READ_ONLY_ROLES)
    )


def check_ahead(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch that reads ahead a value that may not be written yet."""
    slots, launches = program.slots, program.launches
    alone = first_step_only(launches, slots)
    for number, launch in enumerate(launches):
        ahead = launch.values.get(AHEAD, ())
        assert isinstance(ahead, Sequence)
        late = sorted(set(ahead) - settled(launches, number, slots, alone)) if ahead else []
        if late:
            refuse(
                launch,
                f"@{launch.symbol} reads operand {late[0]}, @{launch.reads[int(late[0])]}, ahead: a launch right before it may"
                " still write that; leave it out of `ahead`",
            )
