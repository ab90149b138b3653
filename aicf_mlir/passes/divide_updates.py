"""ZeRO stage 1, first half: each rank keeps the optimizer state of its own parameters, and updates these only."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, ParamGroup, parse_groups
from aicf_mlir.ir.division import gradient_names, parts_in, write_parts
from aicf_mlir.ir.signature import result_labels, return_op, steps
from aicf_mlir.optimizers.traced import TracedRule
from aicf_mlir.passes.autodiff import refuse
from aicf_mlir.passes.average_ranks import bytes_of


@dataclass(frozen=True)
class DivideUpdatesPass(ModulePass):
    """Leave in the param groups of every function the parameters of one rank.

    Whole parameters are divided, the largest first, each to the rank with the fewest bytes so far, as torch's
    ZeroRedundancyOptimizer does. The function attribute `aicf.parts` has the names of all ranks, for gather-updates. The pass
    belongs between clip-gradients, which needs all parameters, and apply-optimizer.

    Options:
      rank: the rank whose parameters these are
      ranks: how many ranks there are
    """

    name = "divide-updates"

    rank: int
    ranks: int

    def __post_init__(self) -> None:
        expect_division(self.rank, self.ranks)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in steps(op):
            self.divide(function)

    def divide(self, function: func.FuncOp) -> None:
        """Divide the groups of one function."""
        parts = parts_of(function, self.ranks)
        own = parts[self.rank]
        function.attributes[OPTIMIZER] = ArrayAttr(
            [
                group.with_params([name for name in group.params if name in own]).to_attribute()
                for group in trained_groups(function)
            ]
        )
        write_parts(function, parts)


def expect_division(rank: int, ranks: int) -> None:
    """Raise ValueError for a rank that is none of so many."""
    if not 0 <= rank < ranks:
        raise ValueError(f"expected a rank from 0 to below {ranks}, got {rank}")


def trained_groups(function: func.FuncOp) -> list[ParamGroup]:
    """The param groups of a function, with the parameters that have a gradient on some rank."""
    names = gradient_names(function)
    groups = parse_groups(function.attributes.get(OPTIMIZER, ArrayAttr[StringAttr]([])))
    return [group.with_params([name for name in group.params if name in names]) for group in groups]


def parts_of(function: func.FuncOp, ranks: int) -> list[list[str]]:
    """The names of the parameters of each rank, with about as many bytes for each.

    Refuses a function whose optimizer cannot be divided.
    """
    if (parts := parts_in(function)) is not None:
        return parts
    groups = trained_groups(function)
    if not any(group.params for group in groups):
        where = f"@{function.sym_name.data}"
        refuse(function, f"{where} has no gradients or no {OPTIMIZER}; run autodiff first")
    if any(isinstance(group.rule, TracedRule) for group in groups):
        refuse(function, "the optimizer is traced, and its step may mix parameters: it cannot be divided")
    returned = zip(return_op(function).operands, result_labels(function), strict=True)
    sizes = {label.name: bytes_of(value) for value, label in returned if label.role == "grad"}
    names = [name for group in groups for name in group.params]
    taken, owner = [0] * ranks, dict[str, int]()
    for name in sorted(names, key=lambda name: -sizes[name]):
        owner[name] = taken.index(min(taken))
        taken[owner[name]] += sizes[name]
    return [[name for name in names if owner[name] == rank] for rank in range(ranks)]
