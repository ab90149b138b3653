"""ZeRO stage 2, first half: each rank gets the means of the gradients of its own parameters, and keeps no others."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from aicf_mlir.ir.division import DividedGradients, gradient_names
from aicf_mlir.ir.signature import Label, steps
from aicf_mlir.passes.average_ranks import BUCKET, AverageRanksPass, Averaging, Of, in_order
from aicf_mlir.passes.divide_updates import expect_division, parts_of


@dataclass(frozen=True)
class DivideGradientsPass(ModulePass):
    """Let every gradient be the mean of those of all ranks on the rank that updates its parameter; no other rank has it.

    The parameters are divided as divide-updates divides them, and so are the gradients: a bucket has gradients of one rank. All
    ranks exchange it, and that rank alone makes the sum, in the order of ranks. The sums have the bits of average-ranks,
    which the pass replaces. It averages the gradients that no optimizer takes, and buffers, on all ranks as average-ranks does.

    The function attributes `aicf.parts` and `aicf.gradients` tell the passes that look at all gradients of those of other ranks.
    apply-optimizer updates the parameters that still have a gradient, and gather-updates gathers them.

    Options:
      rank: the rank whose gradients these are
      group: the name of the group
      ranks: how many ranks it has
      bucket: the bytes of a bucket
    """

    name = "divide-gradients"

    rank: int
    ranks: int
    group: str = "dp"
    bucket: int = BUCKET

    def __post_init__(self) -> None:
        expect_division(self.rank, self.ranks)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        whole = AverageRanksPass(ranks=self.ranks, group=self.group, bucket=self.bucket)
        for function in steps(op):
            dividing = Dividing(function, whole, self.rank)
            dividing.write()
            dividing.divided.write(function)
            in_order(function)


class Dividing(Averaging):
    """The collectives of one function, of whose gradients a rank takes its own."""

    def __init__(self, function: func.FuncOp, options: AverageRanksPass, rank: int):
        super().__init__(function, options)
        parts = parts_of(function, options.ranks)
        self.divided = DividedGradients(options.group, rank, gradient_names(function), parts)
        self.owner = {name: owner for owner, part in enumerate(parts) for name in part}

    def wanted(self, value: SSAValue, label: Label, equal: set[SSAValue]) -> Of | None:
        """The mean on one rank, for a gradient that an optimizer takes."""
        if label.role == "grad" and label.name in self.owner:
            return "mean", self.owner[label.name]
        return super().wanted(value, label, equal)

    def takes(self, wanted: Of) -> bool:
        return wanted[1] == self.divided.rank if isinstance(wanted, tuple) else super().takes(wanted)
