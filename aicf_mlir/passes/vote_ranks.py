"""A step of several ranks is one transaction: if a check fails on one of them, no rank updates anything."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.signature import STATUS, STATUS_LABEL, result_labels, return_op, set_results, steps
from aicf_mlir.passes.average_ranks import in_order, same_on_all_ranks
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

    The vote goes with the last collective of a step, and every update waits for it. So a step that a broken exchange ends has
    updated nothing either: a function without a status gets one. The pass belongs before apply-optimizer, whose updates then
    come after the vote and are made in place.

    The last collective of gradients or parameters carries the status, where no rank has more to tell after it. Checks of what
    all ranks have alike, such as means, follow the vote: they fail on all ranks or on none. Where a rank checks values of its
    own after that collective, the status is gathered alone.

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
        """Let the ranks vote on the status of one function."""
        labels = result_labels(function)
        returned = zip(return_op(function).operands, labels, strict=True)
        given = [value for value, label in returned if label.role == STATUS]
        status = given[0] if given else status_argument(function)
        code = 1 + max((op.codes[-1] for op in function.walk() if isinstance(op, nn.CheckOp)), default=0)
        last = last_collective(function)
        late = None if last is None else checks_after(function, last, status)
        if last is None or late is None:
            emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
            of_ranks = emitter.emit(nn.AllGatherOp(status, self.group, self.ranks), "status.of_ranks")
            status = emitter.emit(nn.CheckRanksOp(status, of_ranks, code), "voted")
        else:
            own = late[0].operands[0] if late else status
            carried = with_status(last, own)
            emitter = Emitter(InsertPoint.after(carried), function.location)
            voted = emitter.emit(nn.CheckRanksOp(own, carried.statuses, code), "voted")
            if late:
                late[0].operands[0] = voted
            else:
                status = voted
        results = [
            (status if label.role == STATUS else value, label)
            for value, label in zip(return_op(function).operands, labels, strict=True)
        ]
        set_results(function, results if given else [*results, (status, STATUS_LABEL)])
        in_order(function)


def last_collective(function: func.FuncOp) -> nn.CollectiveOp | None:
    """The last collective of a function, if it is one that may carry a status."""
    found = (op for op in reversed(list(function.body.block.ops)) if isinstance(op, nn.CollectiveOp))
    last = next(found, None)
    return last if type(last) in nn.WITH_STATUS else None


def with_status(last: nn.CollectiveOp, status: SSAValue) -> nn.CollectiveStatusOp:
    """Let a collective carry a status."""
    op = nn.WITH_STATUS[type(last)](last.x, status, last.group.data, last.ranks.value.data)
    op.location = last.location
    op.result.name_hint, op.statuses.name_hint = last.result.name_hint, "status.of_ranks"
    Rewriter.replace_op(last, op, [op.result])
    return op


def checks_after(function: func.FuncOp, last: nn.CollectiveOp, status: SSAValue) -> list[nn.CheckOp] | None:
    """The last checks of a function, as far as they come after a collective, where all are of what the ranks have alike.

    None where one is of a value that each rank has for itself.
    """
    same, found = same_on_all_ranks(function), list[nn.CheckOp]()
    while not is_before(status, last):
        check = status.owner
        if isinstance(check, nn.CheckFiniteOp):
            check_own_before(check, last, same)
        if not isinstance(check, nn.CheckOp) or not same.issuperset(check.operands[1:]):
            return None
        found.insert(0, check)
        status = check.operands[0]
    return found


def check_own_before(check: nn.CheckFiniteOp, last: nn.CollectiveOp, same: set[SSAValue]) -> None:
    """Check the first values, such as the loss of each rank, before a collective, and those that all have alike where it was.

    The codes stay as they are.
    """
    own = [value for value in check.x if value not in same]
    rest, code = check.x[len(own) :], check.code.value.data
    if not own or not rest or not same.issuperset(rest):
        return
    if all(is_before(value, last) for value in (check.status, *own)):
        first = nn.CheckFiniteOp(check.status, own, code)
        status = Emitter(InsertPoint.before(last), check.location).emit(first)
        check.operands = [status, *rest]
        check.code = IntegerAttr(code + len(own), i64)


def is_before(value: SSAValue, op: Operation) -> bool:
    """True if a value is there before an op of the same function."""
    return not isinstance(value, OpResult) or value.op.is_before_in_block(op)
