"""Elementwise ops whose launch has another name, or depends on attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.ir import Operation

from aicf_mlir.dialects import nn
from aicf_mlir.passes.lower.same import BY_NAME


def of_launch(name: str) -> Callable[[nn.PointwiseOp], list[Operation]]:
    """The kernel op of another name, if no operand is repeated."""

    def rule(op: nn.PointwiseOp) -> list[Operation]:
        approximate = op.parameters.get("approximate", "none")
        launch = BY_NAME[name.replace("gelu", "gelu_tanh") if approximate == "tanh" else name]
        return [launch.launch(op.operands, op.result_types)]

    return rule


RULES: dict[type[Operation], Callable[[Any], list[Operation]]] = {
    nn.GeluOp: of_launch("kernel.gelu"),
    **{
        getattr(nn, f"{name.capitalize()}GradOp"): of_launch(f"kernel.{name}_bwd")
        for name in ("relu", "gelu", "silu", "tanh", "sigmoid")
    },
}
