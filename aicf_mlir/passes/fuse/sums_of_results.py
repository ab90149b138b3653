"""Sums of columns of what rows give, such as the gradient of a bias, join the launch of the rows: nothing reads the result again.

Loop fusion has sums of columns in one launch with rows if they take what follows no reduction. The gradient of a norm's input
follows two, and it is what the bias before the norm gets its gradient from. A walk over the rows that stay in registers has each
of its elements there. So only rows that such a walk takes are extended. What follows from the sums alone, such as a cast, comes
along.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import OpResult
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.codegen.cuda.rows_and_columns import schedule
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COLUMN_SUM, Body, is_float
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import shares_block
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.roundings import written
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.passes.fuse.loops.cluster import FEW_ROWS
from aicf_mlir.passes.fuse.rounding import as_tensor
from aicf_mlir.passes.fuse.rule import FusionRule, is_small
from aicf_mlir.passes.fuse.views import in_place_of, readers_of, view_chain


@dataclass(frozen=True)
class FuseSumsOfResultsPass(FusionRule):
    """Sum the columns of a result in the launch that gives it row by row.

    Not in a small step.
    """

    name = "fuse-sums-of-results"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if is_small(function):
            return
        selection = Selection(function.parent_op(), self.target, bodies)
        for op in list(function.body.block.ops):
            if not isinstance(op, kernel.RowwiseOp) or op.kernel_id is not None or op.ins["table"]:
                continue
            launch: KernelOp = op
            for number in range(len(op.results)):
                if (found := sum_of(launch, launch.results[number], bodies)) is not None:
                    launch = extended(launch, number, found, bodies, selection) or launch


def is_one_walk(rows: Kernel) -> bool:
    """True if one walk has rows with their column sums in registers; apart, all operands are read twice."""
    return schedule(rows) is not None


def sum_of(op: KernelOp, result: OpResult, bodies: Bodies) -> KernelOp | None:
    """The launch that sums the columns of a result of the domain's shape, if there is one of many rows."""
    shape, reduced = op.attrs["shape"], op.attrs["reduced"]
    assert isinstance(shape, list) and isinstance(reduced, int)
    rows, row = prod(shape[: len(shape) - reduced]), shape[len(shape) - reduced :]
    if shape_of(result) != tuple(shape) or rows < FEW_ROWS or shares_block(result.type):
        return None
    for reader in readers_of(result):
        if not isinstance(reader, kernel.ReduceSumOp | kernel.ColwiseOp) or reader.kernel_id is not None:
            continue
        if len(reader.operands) != 1 or result not in view_chain(reader.operands[0]):
            continue
        totals = all(prod(shape_of(x)) == prod(row) and not shares_block(x.type) for x in reader.results)
        if totals and summed_rows(reader, bodies) == rows:
            return reader
    return None


def summed_rows(op: KernelOp, bodies: Bodies) -> int | None:
    """How many rows a launch of one operand sums column by column; None if it does something else."""
    if isinstance(op, kernel.ReduceSumOp):
        dims = op.attrs["dims"]
        assert isinstance(dims, list)
        plain = dims == list(range(len(dims))) and op.attrs.get("divisor", 1.0) == 1.0
        return prod(shape_of(op.operands[0])[: len(dims)]) if plain else None
    shape, reduced = op.attrs["shape"], op.attrs["reduced"]
    assert isinstance(shape, list) and isinstance(reduced, int)
    whole = not op.ins["table"] and shape_of(op.operands[0]) == tuple(shape)
    return prod(shape[:reduced]) if whole and follows_one_sum(bodies[str(op.attrs["body"])]) else None


def follows_one_sum(body: Body) -> bool:
    """True if all that a body of one operand gives follows from the sum of that operand alone."""
    sums = [line for line in body.lines if 0 in line.args or not (line.args or line.op == "arith.constant")]
    return [line.op for line in sums] == ["scalar.sum"] and all(result > 0 for result in body.results)


def extended(
    op: KernelOp, number: int, total: KernelOp, bodies: Bodies, selection: Selection
) -> KernelOp | None:
    """The launch with what `total` gives of the columns of this result; None where no walk has all of it."""
    shape, reduced = op.attrs["shape"], op.attrs["reduced"]
    assert isinstance(shape, list) and isinstance(reduced, int)
    name = str(op.attrs["body"])
    body, elements = bodies[name], [tensor_spec(value)[0] for value in op.operands]
    given = [tensor_spec(value)[0] for value in (*op.results, *total.results)]
    behind = None if isinstance(total, kernel.ReduceSumOp) else bodies[str(total.attrs["body"])]
    builder = Builder(body.args, elements)
    values = builder.inline(body, range(len(body.args)))
    term = as_tensor(builder.scalar(values[number]), given[number])
    if not is_float(term.type) or body.type(body.results[number]) != term.type:
        return None
    column = builder.line(COLUMN_SUM, [term.value], term.type)
    found = [column] if behind is None else continued(builder, behind, column)
    made = written(builder.finish([*values, *found]), elements, given)
    row = shape[len(shape) - reduced :]
    launch = kernel.RowwiseOp.launch(
        {"x": list(op.operands), "table": []},
        {"y": [*(x.type for x in op.results), *(TensorType(element_type(x), row) for x in total.results)]},
        body=Symbol(bodies.symbol(made, f"{name}_sum")),
        shape=shape,
        reduced=reduced,
    )
    try:
        rows = selection.generated(launch.use)
    except VerifyError:
        rows = None
    if rows is None or not is_one_walk(rows):
        launch.erase()
        return None
    launch.location = fused_location(op, total)
    Rewriter.insert_op(launch, InsertPoint.before(op))
    for before, after in zip([*op.results, *total.results], launch.results, strict=True):
        after.name_hint = before.name_hint
    for before, after in zip(total.results, launch.results[len(op.results) :], strict=True):
        before.replace_all_uses_with(in_place_of(before, after, op))
    Rewriter.erase_op(total)
    Rewriter.replace_op(op, [], launch.results[: len(op.results)])
    return launch


def continued(builder: Builder, behind: Body, column: int) -> list[int]:
    """What a body gives whose sum of its one operand is `column`."""
    values = [-1]
    for line in behind.lines:
        args = [values[arg] for arg in line.args]
        values.append(
            column if line.op == "scalar.sum" else builder.line(line.op, args, line.type, line.attr)
        )
    return [values[result] for result in behind.results]
