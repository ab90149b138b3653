"""Rowwise launches that move most bytes along their rows and others across them: a copy turns what lies across.

On a GPU a copy between two orders goes through tiles in shared memory, at the rate of memory. A rowwise launch that reads or
writes one element of each 32 bytes takes 7 to 10 times as long as its bytes: of 64 x 196 x 768 in bf16 a layer norm that wrote
its rows across took 136 us on an H200, and a copy takes 12.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.codegen.cuda.row_schedules import bytes_of, draft, lying
from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.kernels.column_sums import has_column_sums
from aicf_mlir.passes.target import TargetPass

LEAST = 1 << 20
"""Bytes that are turned; fewer stay in a cache until all of their line is used, and a launch takes longer."""


@dataclass(frozen=True)
class StraightenRowsPass(TargetPass):
    """Turn what lies across most of a rowwise launch's bytes, by a copy before it or after it.

    Options:
      target: "cpu" (the default, which changes nothing), or a compute capability such as "sm_90"
    """

    name = "straighten-rows"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.is_cpu:
            return
        selection = Selection(op, self.target)
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                turned: dict[SSAValue, SSAValue] = {}
                for launch in list(function.body.block.ops):
                    if isinstance(launch, kernel.RowwiseOp):
                        straighten(launch, selection, turned)


def straighten(launch: KernelOp, selection: Selection, turned: dict[SSAValue, SSAValue]) -> None:
    """Copy what lies across; `turned` has the copies of operands so far. Sums of columns are taken along rows alone."""
    found = selection.generated(launch.use)
    assert found is not None
    across, along = lying(found, draft(found))
    if bytes_of(across.values()) > bytes_of(along.values()) and not has_column_sums(found):
        return
    for number, tensor in across.items():
        if bytes_of([tensor]) < LEAST:
            continue
        if number >= len(launch.operands):
            turn_result(launch, number - len(launch.operands))
            continue
        value = launch.operands[number]
        if value not in turned:
            turned[value] = turn_operand(launch, value)
        launch.operands[number] = turned[value]


def turn_operand(launch: KernelOp, value: SSAValue) -> SSAValue:
    """A dense copy of an operand."""
    copy = kernel.CopyOp.launch([value], [TensorType(element_type(value), shape_of(value))])
    copy.location = launch.location
    Rewriter.insert_op(copy, InsertPoint.before(launch))
    return copy.results[0]


def turn_result(launch: KernelOp, number: int) -> None:
    """Have the launch write a result densely, and a copy write it to its place."""
    result = launch.results[number]
    placed = result.type
    readers = list(result.uses)
    dense = Rewriter.replace_value_with_new_type(result, TensorType(element_type(result), shape_of(result)))
    copy = kernel.CopyOp.launch([dense], [placed])
    copy.location = launch.location
    copy.results[0].name_hint, dense.name_hint = dense.name_hint, None
    Rewriter.insert_op(copy, InsertPoint.after(launch))
    for use in readers:
        use.operation.operands[use.index] = copy.results[0]
