"""Launches that need not wait for each other go on branches, which a captured graph runs in parallel.

Branch 0 has the longest path by estimated lengths, and everything that fills a GPU by itself: no launch of this kind was
measured to run faster in parallel with another. An exchange with other GPUs does not, however long it is. If a temporary
that is overwritten in place would order launches of two branches, the new value gets memory of its own; plan-memory then
separates the memory of branches. The order of the text, which is that of eager steps, stays, and a plan for the CPU stays
unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.branches import MOST, reach_of, with_branch_order
from aicf_mlir.dialects.plan.hazards import hazards, order_launches
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.passes.multi_stream.estimates import exchanges_of, microseconds_of
from aicf_mlir.passes.multi_stream.scheduling import assign
from aicf_mlir.passes.multi_stream.versions import give_memory, overwrites


def place_multi_stream(program: ProgramOp, most: int, longest: float) -> None:
    """Write the branch of each launch of a plan without addresses for a GPU, of at most `most` branches."""
    apart = program.clone()
    give_memory(apart, overwrites(apart))
    edges = hazards(apart.launches, apart.slots)
    branches = assign(microseconds_of(program), edges, most, longest, exchanges_of(program))
    order = reach_of(with_branch_order(edges, branches))
    give_memory(program, [each for each in overwrites(program) if not each.waits_for_nothing_more(order)])
    for launch, branch in zip(program.launches, branches, strict=True):
        launch.set_branch(branch)
    order_launches(program.launches, program.slots)


@dataclass(frozen=True)
class MultiStreamPass(ModulePass):
    """Put independent launches of each plan.program for a GPU on parallel branches.

    There are at most `branches`; a launch that is estimated to run for more than `longest` microseconds stays on branch 0.
    """

    name = "multi-stream"

    branches: int = 4
    longest: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.branches <= MOST:
            raise ValueError(f"there are 1 to {MOST} branches, got {self.branches}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for program in op.ops:
            if not isinstance(program, ProgramOp) or is_cpu(program.target.data):
                continue
            if program.arenas or program.peak is not None:
                message = (
                    "branches are chosen before there are addresses; run multi-stream before plan-memory"
                )
                program.emit_error(message, PlanError(message))
            place_multi_stream(program, self.branches, self.longest)
