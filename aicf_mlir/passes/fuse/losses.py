"""Losses and their gradients as loops, on a GPU: with casts on both sides, and, if possible, in one pass.

The prebuilt launches of a loss and of its gradient each read prediction and target, and a cast before or after them is a launch
of its own. As reductions and maps they are computed together with the prediction: in the epilogue of its product, or in one pass
over it. On the CPU, whose launches are calls, the prebuilt ones stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.loss_loops import cross_entropy, squared_error
from aicf_mlir.passes.fuse.rule import FusionRule

LOOPS: Mapping[type[Operation], Callable[[KernelOp, Bodies], list[Operation]]] = {
    kernel.MseLossOp: squared_error.loss,
    kernel.MseGradOp: squared_error.gradient,
    kernel.CrossEntropyOp: cross_entropy.loss,
    kernel.CrossEntropyGradOp: cross_entropy.gradient,
}
"""The function that writes the loops of each launch; its last op gives the result."""

PREDICTION = ("y", "logits")
"""The operands whose elements are walked."""


@dataclass(frozen=True)
class FuseLossesPass(FusionRule):
    """Write losses and their gradients as loops, which other loops and epilogues of products take.

    Those of a single number or of none stay.
    """

    name = "fuse-losses"
    DEVICES: ClassVar = ("cuda",)

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        ops = [
            op
            for op in function.body.block.ops
            if type(op) in LOOPS and isinstance(op, KernelOp) and is_walked(op)
        ]
        position = {op: at for at, op in enumerate(function.body.block.ops)}
        for op in ops:
            if op.parent is None:
                continue  # the gradient of a loss before it
            grad = next((other for other in ops if is_gradient(op, other, position)), None)
            if grad is None:
                made = LOOPS[type(op)](op, bodies)
                values = {op.results[0]: made[-1].results[0]}
            else:
                if isinstance(constant := grad.ins["dloss"][0].owner, kernel.ConstantOp):
                    constant.detach()  # to the beginning: others may read it before the loss
                    Rewriter.insert_op(constant, InsertPoint.at_start(function.body.block))
                made, of_loss, of_grad = cross_entropy.both(op, grad, bodies)
                values = {op.results[0]: of_loss, grad.results[0]: of_grad}
            for new in made:
                new.location = op.location if grad is None else fused_location(op, grad)
            for old, value in values.items():
                value.name_hint = old.name_hint
            Rewriter.insert_op(made, InsertPoint.before(op))
            for old, value in values.items():
                old.replace_all_uses_with(value)
                Rewriter.erase_op(old.owner)


def is_walked(op: KernelOp) -> bool:
    """True if its prediction has elements, and a dimension to walk along."""
    shape = next(shape_of(op.ins[name][0]) for name in PREDICTION if op.ins.get(name))
    return bool(shape) and prod(shape) > 0


def is_gradient(op: KernelOp, other: KernelOp, position: Mapping[Operation, int]) -> bool:
    """True if `other` is the gradient of the cross entropy `op`, and can stand in the place of `op`."""
    if not isinstance(op, kernel.CrossEntropyOp) or not isinstance(other, kernel.CrossEntropyGradOp):
        return False
    made = other.ins["dloss"][0].owner
    there = isinstance(made, Block | kernel.ConstantOp) or position.get(made, len(position)) < position[op]
    behind = other.parent is not None and position[op] < position[other]
    return behind and there and cross_entropy.are_one(op, other)
