"""ZeRO, second half: every rank takes the new parameters of all, and only then does any rank update anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.division import GRADIENTS, PARTS, parts_in
from aicf_mlir.ir.signature import Label, argument_keys, result_labels, return_op, set_results, steps
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.autodiff import refuse
from aicf_mlir.passes.average_ranks import all_gather, rows_of
from aicf_mlir.passes.vote_ranks import VoteRanksPass


@dataclass(frozen=True)
class GatherUpdatesPass(ModulePass):
    """Gather the parameters that divide-updates or divide-gradients has left to other ranks, and let the ranks vote afterwards.

    The parameters of a rank of one type are joined, and filled up to as many numbers as the rank with the most has. New values
    wait in the gathered memory for the vote, and are then copied to their places, those of this rank too: it has them once, and
    a rank that dies in between has updated nothing.

    Options:
      group: the name of the group
      ranks: how many ranks it has
    """

    name = "gather-updates"

    ranks: int
    group: str = "dp"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        vote = VoteRanksPass(ranks=self.ranks, group=self.group)
        for function in steps(op):
            take(function, self.gather(function))
            vote.vote(function)

    def gather(self, function: func.FuncOp) -> list[Gathered]:
        """Gather the parameters of one function."""
        names = parts_in(function)
        if names is None or len(names) != self.ranks:
            where = f"@{function.sym_name.data}"
            refuse(
                function,
                f"{where} is not divided among {self.ranks} ranks; run divide-updates or divide-gradients first",
            )
        for attribute in (PARTS, GRADIENTS):
            function.attributes.pop(attribute, None)
        new = {
            label.name: value
            for value, label in zip(return_op(function).operands, result_labels(function), strict=True)
            if is_new_param(label)
        }
        old = params_of(function)
        emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
        found: list[Gathered] = []
        for kind in dict.fromkeys(element_type(old[name]) for part in names for name in part):
            same = [[name for name in part if element_type(old[name]) == kind] for part in names]
            sizes = [[prod(shape_of(old[name])) for name in part] for part in same]
            most = max(map(sum, sizes))
            own = [new[name] for part in same for name in part if name in new]
            flat = [emitter.emit(nn.ReshapeOp(value, [prod(shape_of(value))])) for value in own]
            if rest := most - sum(prod(shape_of(value)) for value in own):
                flat.append(emitter.emit(nn.ConstantOp(0, TensorType(kind, [rest]))))
            joined = flat[0] if len(flat) == 1 else emitter.emit(nn.ConcatOp(flat, 0))
            joined.name_hint = "part"
            whole = all_gather(emitter, joined, self.group, self.ranks)
            found.append(Gathered(whole, same, sizes))
        return found


@dataclass(frozen=True)
class Gathered:
    """The new parameters of one type: a row of each rank."""

    whole: SSAValue
    names: Sequence[Sequence[str]]
    """Of each rank."""
    sizes: Sequence[Sequence[int]]
    """The elements of each parameter."""


def take(function: func.FuncOp, gathered: Sequence[Gathered]) -> None:
    """Let the gathered parameters be the new ones, also of this rank: after the vote they are copied to their places at once."""
    old, end = params_of(function), return_op(function)
    taken = {name for each in gathered for part in each.names for name in part}
    results = [
        (value, label)
        for value, label in zip(end.operands, result_labels(function), strict=True)
        if not (is_new_param(label) and label.name in taken)
    ]
    emitter = Emitter(InsertPoint.before(end), function.location)
    for each in gathered:
        most = shape_of(each.whole)[1]
        for part, sizes, row in zip(each.names, each.sizes, rows_of(emitter, each.whole), strict=True):
            counts = [*sizes, most - sum(sizes)] if most > sum(sizes) else sizes
            pieces = [row] if len(counts) == 1 else emitter.builder.insert(nn.SplitOp(row, 0, counts)).results
            for name, piece in zip(part, pieces, strict=False):
                hint = f"{old[name].name_hint or 'param'}.gathered"
                value = emitter.emit(nn.ReshapeOp(piece, shape_of(old[name])), hint)
                results.append((value, Label("update", name)))
    set_results(function, results)


def is_new_param(label: Label) -> bool:
    """True for the new value of a parameter, or of a buffer that no parameter is called as."""
    return label.role == "update" and label.target_role in ("", "param")


def params_of(function: func.FuncOp) -> Mapping[str, SSAValue]:
    """The parameters of a function by name."""
    arguments = zip(argument_keys(function), function.args, strict=True)
    return {name: argument for (role, name), argument in arguments if role == "param"}
