"""Gradients in f16 or bf16 of f32 parameters: the optimizer's launch reads them as they are.

Under mixed precision a product gives the gradient in the type that it computes in, and a cast makes it f32 for the update.
The launch widens what it loads itself, with the same bits, so that the cast and its traffic go. This comes before all other
fusion, which would join such casts with each other or write them from the product. A cast that something else reads stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue, Use
from xdsl.rewriter import Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.layouts import shares_block
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.tensor_op import element_type, shape_of
from aicf_mlir.optimizers import UPDATES
from aicf_mlir.optimizers.op import GRADIENT
from aicf_mlir.passes.fuse.missed import read_by
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.views import view_chain, viewed_as


@dataclass(frozen=True)
class FuseGradientsPass(FusionRule):
    """Have updates read gradients of 16 bits before their casts to f32, if nothing else reads the casts."""

    name = "fuse-gradients"

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        for op in list(function.body.block.ops):
            for index in gradients_of(op) if isinstance(op, KernelOp) else ():
                gradient = op.operands[index]
                if (cast := cast_of(gradient)) is None:
                    continue
                if others := [use.operation for use in reads_of(cast.results[0]) if not is_gradient(use)]:
                    remark(cast, "is not left to the update: something else reads it", *read_by(others))
                    continue
                narrow = TensorType(element_type(cast.operands[0]), shape_of(gradient))
                views, uncast = viewed_as(cast.operands[0], narrow)
                function.body.block.insert_ops_before(views, op)
                op.operands[index] = uncast
                erase_unread(gradient)


def gradients_of(op: KernelOp) -> range:
    """The positions of the gradients among the operands of an update; empty for another launch."""
    if op.op_name not in UPDATES:
        return range(0)
    first = 0
    for name, values in op.ins.items():
        if name == GRADIENT:
            return range(first, first + len(values))
        first += len(values)
    raise AssertionError(f"{op.op_name} has no operand {GRADIENT}")


def cast_of(gradient: SSAValue) -> kernel.CopyOp | None:
    """The cast from f16 or bf16 to f32 that gives `gradient`; None if there is none, or if it moves elements too."""
    cast = view_chain(gradient)[-1].owner
    if not isinstance(cast, kernel.CopyOp) or any(
        shares_block(value.type) for value in (*cast.operands, *cast.results)
    ):
        return None
    read, written = (tensor_spec(value)[0] for value in (*cast.operands, *cast.results))
    return cast if written == "f32" and read in NARROW else None


def erase_unread(gradient: SSAValue) -> None:
    """Erase the reshapes that lead to `gradient` and their cast, up to one that is still read."""
    for value in view_chain(gradient):
        if value.first_use is not None:
            return
        assert isinstance(value.owner, Operation)
        Rewriter.erase_op(value.owner)


def reads_of(value: SSAValue) -> Iterator[Use]:
    """The uses of `value`, including those through a reshape."""
    for use in value.uses:
        if isinstance(use.operation, kernel.ReshapeOp):
            yield from reads_of(use.operation.output)
        else:
            yield use


def is_gradient(use: Use) -> bool:
    """True if an update reads it as a gradient."""
    return isinstance(use.operation, KernelOp) and use.index in gradients_of(use.operation)
