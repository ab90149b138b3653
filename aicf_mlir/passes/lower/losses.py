"""Losses: the same operands, with every attribute written out."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.attributes import from_attribute

SAME_OPERANDS: dict[type[Operation], type[KernelOp]] = {
    nn.MseLossOp: kernel.MseLossOp,
    nn.MseLossGradOp: kernel.MseGradOp,
    nn.CrossEntropyOp: kernel.CrossEntropyOp,
    nn.CrossEntropyGradOp: kernel.CrossEntropyGradOp,
}


def lower_loss(op: Operation) -> list[Operation]:
    """Properties of the loss become attributes of the launch."""
    attrs = {name: from_attribute(name, value) for name, value in op.properties.items()}
    return [SAME_OPERANDS[type(op)].launch(op.operands, op.result_types, **attrs)]


RULES = dict.fromkeys(SAME_OPERANDS, lower_loss)
