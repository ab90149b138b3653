"""Checks: the same operands, with every attribute written out."""

from __future__ import annotations

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.attributes import from_attribute

SAME_OPERANDS: dict[type[Operation], type[KernelOp]] = {
    nn.CheckIndexOp: kernel.CheckIndexOp,
    nn.CheckFiniteOp: kernel.CheckFiniteOp,
}


def lower_check(op: Operation) -> list[Operation]:
    """Properties of the check become attributes of the launch."""
    attrs = {name: from_attribute(name, value) for name, value in op.properties.items()}
    status, *values = op.operands
    operands = {"status": status, "target" if isinstance(op, nn.CheckIndexOp) else "x": values}
    return [SAME_OPERANDS[type(op)].launch(operands, {"status": op.result_types}, **attrs)]


RULES = dict.fromkeys(SAME_OPERANDS, lower_check)
