"""A step of several ranks is one transaction: if a check fails on one of them, no rank updates anything."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.signature import STATUS, STATUS_LABEL, result_labels, return_op, set_results, steps
from aicf_mlir.passes.average_ranks import in_order
from aicf_mlir.passes.check_finite import status_argument


def passes_of_ranks(group: str, ranks: int, zero: int = 0, rank: int = 0) -> dict[str, str]:
    """The passes of a step of so many ranks, with their options; `zero`: the stage of ZeRO by which the step is divided, so that
    `rank` has a text of its own.
    """
    options = f'ranks={ranks} group="{group}"'
    if zero == 2:
        return {"divide-gradients": f"rank={rank} {options}", "gather-updates": options}
    if zero == 1:
        own = f"rank={rank} ranks={ranks}"
        return {"average-ranks": options, "divide-updates": own, "gather-updates": options}
    return {"average-ranks": options, "vote-ranks": options}


@dataclass(frozen=True)
class VoteRanksPass(ModulePass):
    """Let the status of a step be that of the rank that failed at the first check.

    The vote is the last collective of a step, and every update waits for the status. So a step that a broken exchange ends has
    updated nothing either: a function without a status gets one. The pass belongs before apply-optimizer, whose updates then
    come after the vote and are made in place.

    Options:
      group: the name of the group
      ranks: how many ranks it has
    """

    name = "vote-ranks"

    ranks: int
    group: str = "dp"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            self.vote(function)

    def vote(self, function: func.FuncOp) -> None:
        """Put the vote at the end of one function."""
        results = list(zip(return_op(function).operands, result_labels(function), strict=True))
        given = [value for value, label in results if label.role == STATUS]
        status = given[0] if given else status_argument(function)
        code = 1 + max((op.codes[-1] for op in function.walk() if isinstance(op, nn.CheckOp)), default=0)
        emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
        gathered = nn.AllGatherOp(status, self.group, self.ranks)
        of_ranks = emitter.emit(gathered, "status.of_ranks")
        voted = emitter.emit(nn.CheckRanksOp(status, of_ranks, code), "voted")
        if not given:
            results.append((voted, STATUS_LABEL))
        set_results(function, [(voted if label.role == STATUS else value, label) for value, label in results])
        in_order(function)
