"""The site of a random word is an operand of its launch and no number in its body: dropouts of one shape are one kernel."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType, UnitAttr, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.ir.body import PHILOX, Body, Line
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.properties import float_attr

SITE = 2
"""The operand of `scalar.philox` that is the site."""


class Sites:
    """Sites as constants that launches read, one for each number of a block."""

    def __init__(self) -> None:
        self._made: dict[tuple[Block, int], kernel.ConstantOp] = {}

    def at(self, site: int, reader: Operation) -> SSAValue:
        """The constant; if `reader` is the first that needs it, it is written before everything else."""
        block = reader.parent
        assert block is not None
        if (found := self._made.get((block, site))) is None:
            properties = {"value": float_attr(float(site)), "data": UnitAttr()}
            found = kernel.ConstantOp.build_op([], [TensorType(i64, [])], properties)
            found.location, found.output.name_hint = reader.location, "site"
            Rewriter.insert_op(found, InsertPoint.at_start(block))
            self._made[block, site] = found
        return found.output


def with_sites_as_arguments(body: Body) -> tuple[Body, list[int]]:
    """The body with each constant site of its random words as a further last argument, and those sites."""
    of_line = [_site_of(body, line) for line in body.lines]
    sites = list(dict.fromkeys(site for site in of_line if site is not None))
    if not sites:
        return body, []
    builder = Builder([*body.args, *["i64"] * len(sites)])
    values = list(range(len(body.args)))
    for line, site in zip(body.lines, of_line, strict=True):
        args = [values[arg] for arg in line.args]
        if site is not None:
            args[SITE] = len(body.args) + sites.index(site)
        values.append(builder.line(line.op, args, line.type, line.attr))
    return builder.finish(values[result] for result in body.results), sites


def _site_of(body: Body, line: Line) -> int | None:
    """The site of a random word, if it is a constant; None for any other line."""
    if line.op != PHILOX or line.args[SITE] < len(body.args):
        return None
    source = body.lines[line.args[SITE] - len(body.args)]
    return int(source.attr or 0) if source.op == "arith.constant" else None
