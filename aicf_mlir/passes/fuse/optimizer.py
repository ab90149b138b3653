"""The optimizer over all parameters as one launch.

Updates of one kind (op, attributes, element type) are merged into the last of them, where all gradients are
known. An update whose new values are read before that stays alone. Scalars, and the vectors with an element
for each parameter, are listed once per param group; two updates are of one group if they read the very same
values.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.attributes import AttributeValue
from aicf_mlir.dialects.base import element_type
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.locations import common_location

UPDATES = (kernel.SgdStepOp, kernel.AdamStepOp)
PER_TENSOR = ("groups", "indices")
"""The attributes that have an entry for each tensor."""

Kind = tuple[str, tuple[tuple[str, AttributeValue], ...], str]


def kind_of(op: KernelOp) -> Kind:
    """What two updates must have in common to be one launch."""
    attrs = tuple((name, value) for name, value in op.attrs.items() if name not in PER_TENSOR)
    return op.op_name, attrs, str(element_type(op.operands[0]))


def groups_of(op: KernelOp) -> list[int]:
    """The param group of each tensor of an update."""
    groups = op.attrs["groups"]
    return list(groups) if isinstance(groups, list) else []


def indices_of(op: KernelOp) -> list[int]:
    """The element of each tensor in its group's vectors; empty for an update that has none."""
    indices = op.attrs.get("indices", [])
    return list(indices) if isinstance(indices, list) else []


def columns(op: KernelOp) -> tuple[list[Sequence[SSAValue]], list[Sequence[SSAValue]]]:
    """The operands of an update: the columns of its tensors (p, g, ...), and the scalars of each group."""
    groups = groups_of(op)
    n, tensors = len(groups), _tensor_columns(op)
    scalars = op.operands[tensors * n :]
    per_group = len(scalars) // (max(groups) + 1)
    return (
        [op.operands[i * n : (i + 1) * n] for i in range(tensors)],
        [scalars[i : i + per_group] for i in range(0, len(scalars), per_group)],
    )


def _tensor_columns(op: KernelOp) -> int:
    """How many tensors each parameter brings: p, g, and its states, which are updated as p is."""
    return len(op.results) // len(groups_of(op)) + 1


def merge(updates: Sequence[KernelOp]) -> KernelOp:
    """One launch that does what all of `updates` do; in their order."""
    tensors: list[list[SSAValue]] = [[] for _ in range(_tensor_columns(updates[0]))]
    numbers: dict[tuple[SSAValue, ...], int] = {}
    groups: list[int] = []
    indices: list[int] = []
    for update in updates:
        own, scalars = columns(update)
        for column, values in zip(tensors, own, strict=True):
            column.extend(values)
        groups += [numbers.setdefault(tuple(scalars[group]), len(numbers)) for group in groups_of(update)]
        indices += indices_of(update)
    operands = [value for column in (*tensors, *numbers) for value in column]
    result_types = [value.type for index, column in enumerate(tensors) if index != 1 for value in column]
    attrs = {**updates[0].attrs, "groups": groups} | ({"indices": indices} if indices else {})
    merged = type(updates[0]).launch(operands, result_types, **attrs)
    merged.location = common_location(updates)
    return merged


def results_of(merged: KernelOp, updates: Sequence[KernelOp]) -> list[list[SSAValue]]:
    """The results of `merged` that stand for those of each update."""
    rows: list[list[SSAValue]] = []
    n, first = len(groups_of(merged)), 0
    for update in updates:
        count = len(groups_of(update))
        starts = range(first, len(merged.results), n)
        rows.append([merged.results[start + i] for start in starts for i in range(count)])
        first += count
    return rows


def fuse_updates(function: FuncOp) -> None:
    """Merge the updates of each kind into one launch."""
    order: dict[Operation, int] = {}
    kinds: dict[Kind, list[KernelOp]] = {}
    for position, op in enumerate(function.body.block.ops):
        order[op] = position
        if isinstance(op, UPDATES):
            kinds.setdefault(kind_of(op), []).append(op)
    for updates in kinds.values():
        last = updates[-1]
        free = [
            update
            for update in updates
            if all(order[use.operation] > order[last] for result in update.results for use in result.uses)
        ]
        if len(free) < 2:
            continue
        merged = merge(free)
        function.body.block.insert_op_before(merged, last)
        order[merged] = order[last]
        for update, results in zip(free, results_of(merged, free), strict=True):
            for old, new in zip(update.results, results, strict=True):
                new.name_hint = old.name_hint
            Rewriter.replace_op(update, [], results)
