"""Elementwise ops whose launch depends on their type or attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.dialects.builtin import TensorType, f64
from xdsl.ir import Operation, SSAValue

from aicf_mlir.dialects import kernel, nn
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.ir.expect import is_float
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.lower.same import BY_NAME


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


def of_launch(name: str) -> Callable[[nn.PointwiseOp], list[Operation]]:
    """The kernel op of another name, where no operand is repeated."""

    def rule(op: nn.PointwiseOp) -> list[Operation]:
        approximate = op.parameters.get("approximate", "none")
        launch = BY_NAME[name.replace("gelu", "gelu_tanh") if approximate == "tanh" else name]
        return [launch.launch(op.operands, op.result_types)]

    return rule


RULES: dict[type[Operation], Callable[[Any], list[Operation]]] = {
    nn.AddOp: of_numbers(kernel.AddOp),
    nn.SubOp: of_numbers(kernel.SubOp),
    nn.GeluOp: of_launch("kernel.gelu"),
    **{
        getattr(nn, f"{name.capitalize()}GradOp"): of_launch(f"kernel.{name}_bwd")
        for name in ("relu", "gelu", "silu", "tanh", "sigmoid")
    },
}
