"""Rows of few elements on the CPU: their reductions are written out, so that the lanes of a loop have a row each.

A row kernel walks a row with all its lanes and then adds them. Of three elements most lanes are idle, and a row takes some 20 ns.
As a map over the rows, which reads each of the three places as an operand, it takes about one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import COLUMN_SUM, REDUCTIONS, Body, is_float, is_table
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.layouts import Layout, shares_block
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.passes.fuse.loops.emit import erase_unread, operand_at
from aicf_mlir.passes.fuse.loops.members import LoopMember, member_of
from aicf_mlir.passes.fuse.rule import FusionRule

SHORT = 8
"""The most elements of a row whose reductions are written out."""
MANY = 256
"""The fewest rows: fewer do not fill the lanes of a loop."""
LONGEST = 64
"""The most lines of a body, for each element of a row."""

COMBINED = {
    "scalar.sum": ("arith.addf", "arith.addi"),
    "scalar.prod": ("arith.mulf", "arith.muli"),
    "scalar.max": ("arith.maximumf", "arith.maxsi"),
    "scalar.min": ("arith.minimumf", "arith.minsi"),
}
"""What adds two terms of a reduction, floats and integers."""


@dataclass(frozen=True)
class FuseShortRowsPass(FusionRule):
    """Write reductions of many rows of a few elements as maps, so that the lanes of a loop have a row each."""

    name = "fuse-short-rows"
    DEVICES: ClassVar = ("cpu",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        for op in list(function.body.block.ops):
            member = member_of(op, bodies)
            if member is not None and is_short(member):
                write(member, bodies)
        erase_unread(function.body.block)


def is_short(member: LoopMember) -> bool:
    """True if the reductions of `member` are worth to be written out."""
    rank = len(member.domain)
    row = member.domain[rank - member.reduced :]
    return (
        member.kind == "rowwise"
        and 1 < prod(row) <= SHORT
        and prod(member.kept) >= MANY
        and all(member.narrow)
        and len(member.body.lines) <= LONGEST
        and not any(
            line.op == COLUMN_SUM or (line.type == "i1" and line.op in REDUCTIONS)
            for line in member.body.lines
        )
        and not any(shares_block(value.type) for value in member.results)
    )


def write(member: LoopMember, bodies: Bodies) -> None:
    """Put the map in the place of the launch."""
    points = list(product(*(range(size) for size in member.domain[len(member.kept) :])))
    body, places = written_out(member, points)
    block, anchor = member.op.parent_block(), member.op
    assert block is not None
    operands = [
        operand_at(block, member.operands[number].root, layout_at(member, number, point), anchor)
        for number, point in places
    ]
    tables = [is_table(type_) for type_ in body.args]
    types = [TensorType(element_type(result), member.kept) for result in member.results]
    launch = kernel.MapOp.launch(
        {
            "x": [value for value, table in zip(operands, tables, strict=True) if not table],
            "table": [value for value, table in zip(operands, tables, strict=True) if table],
        },
        {"y": types},
        body=Symbol(bodies.symbol(body, str(member.op.attrs.get("body", member.op.op_name)))),
        shape=list(member.kept),
    )
    made: list[Operation] = [launch]
    values: list[SSAValue] = []
    for old, new in zip(member.results, launch.results, strict=True):
        if shape_of(old) != member.kept:
            made.append(kernel.ReshapeOp.build_op([new], [old.type]))
            new = made[-1].results[0]
        new.name_hint = old.name_hint
        values.append(new)
    for op in made:
        op.location = anchor.location
    Rewriter.insert_op(made, InsertPoint.before(anchor))
    Rewriter.replace_op(anchor, [], values)


def written_out(
    member: LoopMember, points: Sequence[tuple[int, ...]]
) -> tuple[Body, list[tuple[int, tuple[int, ...]]]]:
    """The body of the map, and for each of its arguments the operand and the place in the row that it is."""
    body, rank = member.body, len(member.kept)
    places = list(arguments(member, points))
    builder = Builder([body.args[number] for number, _ in places])
    at = {place: argument for argument, place in enumerate(places)}
    start = points[0]

    def given(number: int, point: tuple[int, ...]) -> int:
        return at.get((number, point), at[number, start])

    values = [[given(number, point) for point in points] for number in range(len(body.args))]
    for line in body.lines:
        if line.op in REDUCTIONS:
            floats, integers = COMBINED[line.op]
            total, *rest = values[line.args[0]]
            for term in rest:
                total = builder.line(floats if is_float(line.type) else integers, [total, term], line.type)
            values.append([total] * len(points))
        elif line.op == "scalar.index" and isinstance(line.attr, int) and line.attr >= rank:
            values.append([builder.constant(point[line.attr - rank], "i64").value for point in points])
        else:
            values.append([
                builder.line(line.op, [values[arg][n] for arg in line.args], line.type, line.attr)
                for n in range(len(points))
            ])  # fmt: skip
    return builder.finish([values[result][0] for result in body.results]), places


def arguments(member: LoopMember, points: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each operand once for all places of a row that differ; numbers first, tables last."""
    for tables in (False, True):
        for number, (type_, access) in enumerate(zip(member.body.args, member.operands, strict=True)):
            if is_table(type_) != tables:
                continue
            layout = access.layout
            differs = layout is not None and not tables and any(layout.strides[len(member.kept) :])
            for point in points if differs else points[:1]:
                yield number, point


def layout_at(member: LoopMember, number: int, point: tuple[int, ...]) -> Layout | None:
    """The layout of an operand at one place of each row."""
    layout, rank = member.operands[number].layout, len(member.kept)
    if layout is None or is_table(member.body.args[number]):
        return None
    offset = layout.offset + sum(i * step for i, step in zip(point, layout.strides[rank:], strict=True))
    return Layout(layout.shape[:rank], layout.strides[:rank], offset).normal()
