"""Elementwise ops whose launch depends on their type or attributes."""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects.builtin import TensorType, f64
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of


def of_numbers(target: type[KernelOp]) -> Callable[[Operation], list[Operation]]:
    """The same op; integers are computed in float64, which is exact up to 2^53, for there is no kernel for them."""

    def rule(op: Operation) -> list[Operation]:
        (result,) = op.results
        if is_float(result):
            return [target.launch(op.operands, op.result_types)]
        wide = [_in_float64(operand) for operand in op.operands]
        computed = target.launch([each.results[0] for each in wide], [TensorType(f64, shape_of(result))])
        return [*wide, computed, kernel.CopyOp.launch(computed.results, [result.type])]

    return rule


def _in_float64(value: SSAValue) -> Operation:
    wide = TensorType(f64, shape_of(value))
    if isinstance(constant := value.owner, nn.ConstantOp | kernel.ConstantOp):
        return kernel.ConstantOp.build_op([], [wide], {"value": constant.value})
    return kernel.CopyOp.launch([value], [wide])


def lower_gelu(op: nn.GeluOp) -> list[Operation]:
    """The exact and the approximated form are two kernels."""
    target = kernel.GeluTanhOp if op.approximate.data == "tanh" else kernel.GeluOp
    return [target.launch(op.operands, op.result_types)]


def lower_gelu_grad(op: nn.GeluGradOp) -> list[Operation]:
    """As `lower_gelu`."""
    target = kernel.GeluTanhBwdOp if op.approximate.data == "tanh" else kernel.GeluBwdOp
    return [target.launch(op.operands, op.result_types)]


RULES = {
    nn.AddOp: of_numbers(kernel.AddOp),
    nn.SubOp: of_numbers(kernel.SubOp),
    nn.GeluOp: lower_gelu,
    nn.GeluGradOp: lower_gelu_grad,
}
