"""The optimizer over all parameters as one launch.

Updates of one kind (op, attributes, element type) are merged into the last of them, where all gradients are
known. An update whose new values are read before that stays alone. Scalars, and the vectors with an element
for each parameter, are listed once per param group; two updates are of one group if they read the very same
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.locations import common_location
from aicf_mlir.ir.tensor_op import element_type
from aicf_mlir.optimizers import UPDATES
from aicf_mlir.optimizers.op import PER_TENSOR, tensors_of
from aicf_mlir.passes.fuse.missed import Kind, missed_kinds, missed_updates
from aicf_mlir.passes.fuse.rule import FusionRule


def kind_of(op: KernelOp) -> Kind:
    """The kind that two updates must share to be one launch."""
    attrs = tuple((name, value) for name, value in op.attrs.items() if name not in PER_TENSOR)
    states = tuple(name for name, values in op.ins.items() if values)
    return op.op_name, states, attrs, str(element_type(op.operands[0]))


def groups_of(op: KernelOp) -> list[int]:
    """The param group of each tensor of an update."""
    groups = op.attrs["groups"]
    return list(groups) if isinstance(groups, list) else []


def indices_of(op: KernelOp) -> list[int]:
    """The element of each tensor in its group's vectors; empty for an update that has none."""
    indices = op.attrs.get("indices", [])
    return list(indices) if isinstance(indices, list) else []


def scalars_of(op: KernelOp) -> list[dict[str, SSAValue]]:
    """The scalar operands of each group of an update, in addition to its tensors: one value for each name."""
    tensors = tensors_of(op.schema_of())
    given = {name: values for name, values in op.ins.items() if name not in tensors and values}
    return [dict(zip(given, column, strict=True)) for column in zip(*given.values(), strict=True)]


def merge(updates: Sequence[KernelOp]) -> KernelOp:
    """One launch that computes all of `updates`; in their order."""
    operands: dict[str, list[SSAValue]] = {name: [] for name in updates[0].ins}
    results: dict[str, list[Attribute]] = {name: [] for name in updates[0].outs}
    numbers: dict[tuple[SSAValue, ...], int] = {}
    groups: list[int] = []
    indices: list[int] = []
    tensors = tensors_of(updates[0].schema_of())
    for update in updates:
        ins = update.ins
        for name in tensors.intersection(operands):
            operands[name] += ins[name]
        for name, values in update.outs.items():
            results[name] += [value.type for value in values]
        scalars = scalars_of(update)
        for group in groups_of(update):
            key = tuple(scalars[group].values())
            if key not in numbers:
                numbers[key] = len(numbers)
                for name, value in scalars[group].items():
                    operands[name].append(value)
            groups.append(numbers[key])
        indices += indices_of(update)
    attrs = {**updates[0].attrs, "groups": groups} | ({"indices": indices} if indices else {})
    merged = type(updates[0]).launch(operands, results, **attrs)
    merged.location = common_location(updates)
    return merged


def results_of(merged: KernelOp, updates: Sequence[KernelOp]) -> list[list[SSAValue]]:
    """The results of `merged` that replace those of each update."""
    rows: list[list[SSAValue]] = []
    outs, first = list(merged.outs.values()), 0
    for update in updates:
        count = len(groups_of(update))
        rows.append([value for values in outs for value in values[first : first + count]])
        first += count
    return rows


@dataclass(frozen=True)
class FuseOptimizerPass(FusionRule):
    """Merge the updates of each kind into one launch, in the place of the last.

    An update whose new value is read before that stays alone.
    """

    name = "fuse-optimizer"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        order: dict[Operation, int] = {}
        kinds: dict[Kind, list[KernelOp]] = {}
        for position, op in enumerate(function.body.block.ops):
            order[op] = position
            if isinstance(op, KernelOp) and op.op_name in UPDATES:
                kinds.setdefault(kind_of(op), []).append(op)
        missed_kinds(kinds)
        for updates in kinds.values():
            last = updates[-1]
            free = [
                update
                for update in updates
                if all(order[use.operation] > order[last] for result in update.results for use in result.uses)
            ]
            missed_updates(updates, free, order)
            if len(free) < 2:
                continue
            merged = merge(free)
            function.body.block.insert_op_before(merged, last)
            order[merged] = order[last]
            for update, results in zip(free, results_of(merged, free), strict=True):
                for old, new in zip(update.results, results, strict=True):
                    new.name_hint = old.name_hint
                Rewriter.replace_op(update, [], results)
