"""Elementwise ops: each is one launch on the same operands."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.ir import Operation

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp

SAME_OPERANDS: dict[type[Operation], type[KernelOp]] = {
    nn.AddOp: kernel.AddOp,
    nn.SubOp: kernel.SubOp,
    nn.MulOp: kernel.MulOp,
    nn.DivOp: kernel.DivOp,
    nn.NegOp: kernel.NegOp,
    nn.ReluOp: kernel.ReluOp,
    nn.SiluOp: kernel.SiluOp,
    nn.TanhOp: kernel.TanhOp,
    nn.SigmoidOp: kernel.SigmoidOp,
    nn.ReluGradOp: kernel.ReluBwdOp,
    nn.SiluGradOp: kernel.SiluBwdOp,
    nn.TanhGradOp: kernel.TanhBwdOp,
    nn.SigmoidGradOp: kernel.SigmoidBwdOp,
}


def renamed(target: type[KernelOp]) -> Callable[[Operation], list[Operation]]:
    """The rule that keeps operands and types and changes the op."""
    return lambda op: [target.launch(op.operands, op.result_types)]


def lower_gelu(op: nn.GeluOp) -> list[Operation]:
    """The exact and the approximated form are two kernels."""
    target = kernel.GeluTanhOp if op.approximate.data == "tanh" else kernel.GeluOp
    return [target.launch(op.operands, op.result_types)]


def lower_gelu_grad(op: nn.GeluGradOp) -> list[Operation]:
    """As `lower_gelu`."""
    target = kernel.GeluTanhBwdOp if op.approximate.data == "tanh" else kernel.GeluBwdOp
    return [target.launch(op.operands, op.result_types)]


RULES = {
    **{source: renamed(target) for source, target in SAME_OPERANDS.items()},
    nn.GeluOp: lower_gelu,
    nn.GeluGradOp: lower_gelu_grad,
}
