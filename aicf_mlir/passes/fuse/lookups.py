"""Scatters read rows where they are, and those of one index are sorted once.

    %rows = kernel.map x(%at) table(%nodes) {body = @take}
    kernel.scatter_add x(%sums) index(%to) src(%rows)

writes a row for each edge of a graph, and reads it once more. In its place, on a GPU from many sources on, stands

    %keys, %places = kernel.sort_rows index(%to) at(%at)
    kernel.scatter_add x(%sums) index(%keys) src(%nodes) at(%places)

Other sums over the same edges read the same keys. On the CPU, which sorts nothing, index and at are the operands.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.layouts import Layout, shares_block, with_layout
from aicf_mlir.ir.tensor_op import shape_of, tensor_type
from aicf_mlir.passes.fuse.loops.members import resolve
from aicf_mlir.passes.fuse.rule import FusionRule

SORTED = "scatter_add_sorted_cuda"
"""The kernel that sorts its index, unless it is sorted."""


@dataclass(frozen=True)
class FuseLookupsPass(FusionRule):
    """Let sums of rows by an index read the rows where they are, and sort each index once.

    Only if nothing else reads the rows that a lookup has written.
    """

    name = "fuse-lookups"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        sorts: dict[Hashable, KernelOp] = {}
        for op in list(function.body.block.ops):
            if not isinstance(op, kernel.ScatterAddOp) or len(op.results) != 1 or op.ins.get("at"):
                continue
            if self.is_cpu:
                if (found := _looked_up(op, bodies)) is not None:
                    table, places = found
                    _read(op, op.ins["index"][0], table, places)
            elif _sorts(op, self.target):
                found = _looked_up(op, bodies)
                table, places = found if found is not None else (op.ins["src"][0], None)
                launch = _sort(op, table, places, sorts)
                _read(op, launch.results[0], table, launch.results[1])


def _sorts(op: KernelOp, target: str) -> bool:
    try:
        return registry.select_kernel(op.use, target)[0] == SORTED
    except SelectionError:
        return False


def _sort(
    op: KernelOp, table: SSAValue, places: SSAValue | None, sorts: dict[Hashable, KernelOp]
) -> KernelOp:
    """The launch that sorts the index of `op`, perhaps that of an earlier one."""
    (index,) = op.ins["index"]
    attrs = {"rows": shape_of(op.results[0])[0], "source_rows": shape_of(table)[0]}
    key = (resolve(index), None if places is None else resolve(places), *attrs.values())
    if key not in sorts:
        given = {"index": [index], "at": [] if places is None else [places]}
        made = TensorType(i32, shape_of(index))
        launch = kernel.SortRowsOp.launch(given, {"keys": [made], "places": [made]}, **attrs)
        launch.location = op.location
        Rewriter.insert_op(launch, InsertPoint.before(op))
        sorts[key] = launch
    return sorts[key]


def _read(op: KernelOp, index: SSAValue, table: SSAValue, places: SSAValue) -> None:
    """Write `op` with this index, and with the rows of `table` at these places as its sources."""
    lookup = op.ins["src"][0].owner
    given = {"x": list(op.ins["x"]), "index": [index], "src": [table], "at": [places]}
    made = kernel.ScatterAddOp.launch(given, {"x": [op.results[0].type]})
    made.location = op.location
    made.results[0].name_hint = op.results[0].name_hint
    Rewriter.insert_op(made, InsertPoint.before(op))
    op.results[0].replace_all_uses_with(made.results[0])
    Rewriter.erase_op(op)
    if isinstance(lookup, Operation) and table not in lookup.results:
        Rewriter.erase_op(lookup)


def _looked_up(op: KernelOp, bodies: Bodies) -> tuple[SSAValue, SSAValue] | None:
    """The table and the one-dimensional index of which the sources are the rows; None if they are not, or are read twice."""
    (rows,) = op.ins["src"]
    launch = rows.owner
    if not isinstance(launch, GeneratedOp) or not rows.has_one_use() or len(launch.results) != 1:
        return None
    if launch.op_name != "map" or not _is_lookup(bodies[launch.body_symbol]):
        return None
    (index,), (table,) = launch.ins["x"], launch.ins["table"]
    access, shape = resolve(index), shape_of(rows)
    layout = access.layout
    if len(shape) != 2 or layout is None or layout.shape != shape or shape_of(table)[1:] != shape[1:]:
        return None
    if any(shares_block(read.type) for read in (table, access.root)) or (shape[1] > 1 and layout.strides[1]):
        return None
    if tensor_spec(table)[0] != tensor_spec(rows)[0]:
        return None
    own = Layout(shape[:1], layout.strides[:1], layout.offset)
    if own == Layout.dense(shape_of(access.root)):
        return table, access.root
    view = kernel.ViewOp.build_op([access.root], [with_layout(tensor_type(index), own)])
    view.location = launch.location
    Rewriter.insert_op(view, InsertPoint.before(launch))
    return table, view.output


def _is_lookup(body: Body) -> bool:
    """True if its result is the element of the table at the row that its first argument is, in the column that the point has."""
    if len(body.args) != 2 or [line.op for line in body.lines] != ["scalar.index", "scalar.load"]:
        return False
    column, load = body.lines
    return column.attr == 1 and load.args == (1, 0, 2) and body.results == (3,)
