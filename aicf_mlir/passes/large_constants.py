"""A large constant is one number, repeated where a launch works in place on it.

A constant has memory for itself for as long as a step lives: that of a table's gradient, to which rows are added, is as large as
the table. Written in each step, it is memory of this step only, that of the sum. The launch in its place would copy it there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.ir.layouts import Layout, with_layout
from aicf_mlir.ir.tensor_op import element_type, shape_of, tensor_type
from aicf_mlir.passes.target import TargetPass

LARGE = 1 << 20
"""Bytes of a constant from which on it is repeated in each step."""


@dataclass(frozen=True)
class LargeConstantsPass(TargetPass):
    """Repeat a number where a launch may write its result to the memory of a large constant.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"
    """

    name = "large-constants"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        selection = Selection(op, self.target)
        for function in op.ops:
            if isinstance(function, FuncOp) and not function.is_declaration:
                for each in list(function.body.block.ops):
                    if isinstance(each, KernelOp):
                        repeat(each, selection)


def repeat(op: KernelOp, selection: Selection) -> None:
    """Have `op` read a number that is repeated before it, in the place of each large constant that a result may replace."""
    large = [index for index, value in enumerate(op.operands) if is_large(value.owner)]
    if not large:
        return
    replaced = {index for _, index in selection.in_place(op.use)}
    for index in large:
        constant = op.operands[index].owner
        if index not in replaced or not isinstance(constant, kernel.ConstantOp):
            continue
        shape = shape_of(constant.output)
        one = kernel.ConstantOp.build_op(
            [], [TensorType(element_type(constant.output), (1,))], {"value": constant.value}
        )
        repeated = with_layout(tensor_type(one.output), Layout(shape, (0,) * len(shape)))
        view = kernel.ViewOp.build_op([one.output], [repeated])
        copy = kernel.CopyOp.launch([view.output], [constant.output.type])
        copy.results[0].name_hint = constant.output.name_hint
        for made in (one, view, copy):
            made.location = op.location
        assert op.parent is not None
        Rewriter.insert_op(one, InsertPoint.at_start(op.parent))
        Rewriter.insert_op([view, copy], InsertPoint.before(op))
        op.operands[index] = copy.results[0]
        if constant.output.first_use is None:
            Rewriter.erase_op(constant)


def is_large(op: object) -> bool:
    """True for a constant of one number and many bytes."""
    if not isinstance(op, kernel.ConstantOp) or op.data is not None:
        return False
    element, shape = tensor_spec(op.output)
    return prod(shape) > 0 and byte_size(element, shape) >= LARGE
