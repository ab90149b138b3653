"""Sums of all elements join sums of columns: one launch reads the common operands, and a small one adds the columns."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import REDUCTIONS, Body
from aicf_mlir.ir.dtypes import ELEMENT_TYPES
from aicf_mlir.ir.formula import Builder
from aicf_mlir.passes.fuse.loops import FuseLoopsPass
from aicf_mlir.passes.fuse.rule import FusionRule

LARGE = 1 << 20
"""Elements that are not in a cache any more when another launch reads them."""


@dataclass(frozen=True)
class FuseTotalsPass(FusionRule):
    """Write large sums of all elements as sums of columns and the sum of those, which are one launch with sums of columns.

    Only where a launch already sums columns of the same operands.
    """

    name = "fuse-totals"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        if written_as_columns(function, bodies):
            FuseLoopsPass(self.target).fuse(function, bodies)


def written_as_columns(function: FuncOp, bodies: Bodies) -> bool:
    """Write large sums of all elements as sums of columns and the sum of those; return True if there were any.

    This is done only if another launch sums columns of their operands, so that the two can be one.
    """
    ops = [op for op in function.body.block.ops if isinstance(op, GeneratedOp)]
    position = {op: at for at, op in enumerate(ops)}
    columns = [op for op in ops if op.op_name == "colwise"]

    def beside(op: GeneratedOp) -> GeneratedOp | None:
        """The first launch that walks the same elements, and reads or gives all operands of `op`."""
        read, shape = set[SSAValue](op.operands), _domain(op)
        for other in columns:
            given = other.results if position[other] < position[op] else ()
            if _domain(other) == shape and read <= {*other.operands, *given}:
                return other
        return None

    totals = [op for op in ops if op.op_name == "rowwise" and _is_large_total(op)]
    found = [(op, other) for op in totals if (other := beside(op)) is not None]
    divided_any = [_divide(op, other, bodies) for op, other in found]
    return any(divided_any)


def _is_large_total(op: GeneratedOp) -> bool:
    """True if `op` gives one number, of many elements."""
    shape = _domain(op)
    whole = op.attrs["reduced"] == len(shape) and len(op.results) == 1
    return whole and not op.ins["table"] and prod(shape) >= LARGE


def _domain(op: GeneratedOp) -> list[int]:
    shape: Any = op.attrs["shape"]
    return shape


def _divide(op: GeneratedOp, beside: GeneratedOp, bodies: Bodies) -> bool:
    """True if `op` has become two launches."""
    halves = divided(bodies[op.body_symbol])
    if halves is None:
        return False
    elements, sums = halves
    shape, reduced = _domain(op), beside.attrs["reduced"]
    assert isinstance(reduced, int)
    kept, name = shape[reduced:], str(op.body_symbol)
    columns = kernel.ColwiseOp.launch(
        {"x": list(op.operands), "table": []},
        {"y": [TensorType(ELEMENT_TYPES[elements.result_types[0]], kept)]},
        body=Symbol(bodies.symbol(elements, f"{name}_columns")),
        shape=shape,
        reduced=reduced,
    )
    total = kernel.RowwiseOp.launch(
        {"x": [columns.results[0]], "table": []},
        {"y": [op.results[0].type]},
        body=Symbol(bodies.symbol(sums, name)),
        shape=kept,
        reduced=len(kept),
    )
    made: list[Operation] = [columns, total]
    Rewriter.insert_op(made, InsertPoint.before(op))
    total.results[0].name_hint = op.results[0].name_hint
    Rewriter.replace_op(op, [], [total.results[0]])
    return True


def divided(body: Body) -> tuple[Body, Body] | None:
    """The terms that `body` sums, and the function of the sum; None if it has another reduction or reads elements after it."""
    first = len(body.args)
    at = [first + number for number, line in enumerate(body.lines) if line.op in REDUCTIONS]
    if len(at) != 1 or body.lines[at[0] - first].op != "scalar.sum" or body.dims:
        return None
    (total,) = at
    front, behind = Builder(body.args), Builder([body.type(total)])
    front.inline(Body(body.args, body.lines, ()), range(first))
    values: dict[int, int] = {}
    for number, line in enumerate(body.lines, first):
        if number == total:
            values[number] = behind.line(line.op, [0], line.type, line.attr)
        elif all(arg in values for arg in line.args):
            values[number] = behind.line(line.op, [values[arg] for arg in line.args], line.type, line.attr)
    if body.results[0] not in values:
        return None
    return front.finish([total]), behind.finish([values[body.results[0]]])
