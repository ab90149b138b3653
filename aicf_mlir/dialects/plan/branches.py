"""Branches: launches that may run at the same time, as parallel branches of a captured graph.

The launches of one branch run one after the other, in the order of the text; between branches only `after` orders launches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan.hazards import Reach
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.ir.registry import is_cpu

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

MOST = 16
"""Branches of a plan: each is a stream of the device."""


def with_branch_order(edges: Sequence[Collection[int]], branches: Sequence[int]) -> list[set[int]]:
    """The launches that each waits for, by index: `edges`, and the launch before it on its branch."""
    last: dict[int, int] = {}
    found: list[set[int]] = []
    for index, (before, branch) in enumerate(zip(edges, branches, strict=True)):
        found.append({*before, last[branch]} if branch in last else set(before))
        last[branch] = index
    return found


def reach_of(edges: Sequence[Collection[int]]) -> Reach:
    """The order of completion of launches by these edges."""
    reach = Reach()
    for before in edges:
        reach.add(before)
    return reach


def branches_of(launches: Sequence[LaunchOp]) -> list[int]:
    """The branch of each launch."""
    return [launch.branch_number for launch in launches]


def check_branches(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch on a branch that cannot be."""
    for launch in program.launches:
        if launch.branch is None:
            continue
        number = launch.branch_number
        if not 1 <= number < MOST:
            refuse(
                launch,
                f"the branch of @{launch.symbol} must be 1 to {MOST - 1}, got {number};"
                " a launch on branch 0 names none",
            )
        if is_cpu(program.target.data):
            refuse(
                launch,
                f"@{launch.symbol} is on branch {number}, but the CPU runs launches one after another; leave it out",
            )
