"""ZeRO stage 1, second half: every rank takes the new parameters of all, and only then does any rank update anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint
from xdsl.utils.hints import isa

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.emitter import Emitter
from aicf_mlir.ir.signature import Label, argument_keys, result_labels, return_op, set_results, steps
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.autodiff import refuse
from aicf_mlir.passes.average_ranks import gather
from aicf_mlir.passes.divide_updates import PARTS
from aicf_mlir.passes.vote_ranks import VoteRanksPass


@dataclass(frozen=True)
class GatherUpdatesPass(ModulePass):
    """Gather the new parameters that divide-updates has left to other ranks, and let the ranks vote afterwards.

    The parameters of a rank of one type are joined, and filled up to as many numbers as the rank with the most has. New values
    wait in temporaries for the vote, and are then copied to their places: a rank that dies in between has updated nothing.

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
            self.gather(function)
            vote.vote(function)

    def gather(self, function: func.FuncOp) -> None:
        """Gather the parameters of one function."""
        parts = function.attributes.pop(PARTS, None)
        if not isa(parts, ArrayAttr[ArrayAttr[StringAttr]]) or len(parts) != self.ranks:
            where = f"@{function.sym_name.data}"
            refuse(function, f"{where} is not divided among {self.ranks} ranks; run divide-updates first")
        results = list(zip(return_op(function).operands, result_labels(function), strict=True))
        new = {
            label.name: value
            for value, label in results
            if label.role == "update" and label.target_role in ("", "param")
        }
        old = {
            name: argument
            for (role, name), argument in zip(argument_keys(function), function.args, strict=True)
            if role == "param"
        }
        emitter = Emitter(InsertPoint.before(return_op(function)), function.location)
        names = [[name.data for name in part] for part in parts]
        for kind in dict.fromkeys(element_type(old[name]) for part in names for name in part):
            same = [[name for name in part if element_type(old[name]) == kind] for part in names]
            for name, value in self.gathered(emitter, same, old, new).items():
                if name not in new:
                    results.append((value, Label("update", name)))
        set_results(function, results)

    def gathered(
        self,
        emitter: Emitter,
        names: Sequence[Sequence[str]],
        old: Mapping[str, SSAValue],
        new: Mapping[str, SSAValue],
    ) -> dict[str, SSAValue]:
        """The new values of parameters of one type, by the ranks that have them."""
        sizes = [[prod(shape_of(old[name])) for name in part] for part in names]
        most = max(map(sum, sizes))
        own = [new[name] for part in names for name in part if name in new]
        flat = [emitter.emit(nn.ReshapeOp(value, [prod(shape_of(value))])) for value in own]
        if rest := most - sum(prod(shape_of(value)) for value in own):
            kind = element_type(old[next(name for part in names for name in part)])
            flat.append(emitter.emit(nn.ConstantOp(0, TensorType(kind, [rest]))))
        joined = flat[0] if len(flat) == 1 else emitter.emit(nn.ConcatOp(flat, 0), "part")
        found = dict[str, SSAValue]()
        for part, counts, whole in zip(
            names, sizes, gather(emitter, joined, self.group, self.ranks), strict=True
        ):
            counts = [*counts, most - sum(counts)] if most > sum(counts) else counts
            pieces = [whole]
            if len(counts) > 1:
                pieces = list(emitter.builder.insert(nn.SplitOp(whole, 0, counts)).results)
            for name, piece in zip(part, pieces, strict=False):
                hint = f"{old[name].name_hint or 'param'}.gathered"
                found[name] = emitter.emit(nn.ReshapeOp(piece, shape_of(old[name])), hint)
        return found
