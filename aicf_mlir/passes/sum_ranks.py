"""A sum over ranks is a gather and additions in the order of ranks, so every rank has the same bits."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.signature import steps
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.passes.average_ranks import gather, in_order, sum_of


@dataclass(frozen=True)
class SumRanksPass(ModulePass):
    """Write every sum over ranks as a gather and additions in the order of ranks.

    It runs after autodiff, where the gradient of a sum is another one, and after accumulate, which repeats the sums.
    """

    name = "sum-ranks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            for each in list(function.body.block.ops):
                if isinstance(each, nn.SumOfRanksOp):
                    emitter = Emitter(InsertPoint.before(each), each.location)
                    of_ranks = gather(emitter, each.x, each.group.data, each.ranks.value.data)
                    total = emitter.cast(sum_of(emitter, of_ranks), element_type(each.x))
                    Rewriter.replace_op(each, [], [total])
            in_order(function)
