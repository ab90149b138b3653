"""What a layer's launches read does not depend on how many layers there are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from programs import step_function
from torch import nn
from torch.nn import functional

from aicf_mlir import trace
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.stages import make_context, run_stages


class Modulated(nn.Module):
    """A residual branch whose normalised input is scaled and shifted by a condition, as in a diffusion transformer."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.condition = nn.Linear(width, 3 * width)
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift, gate = self.condition(condition).chunk(3, -1)
        return x + gate * torch.relu(self.linear(self.norm(x) * (1 + scale) + shift))


class Stack(nn.Module):
    """So many layers of one width."""

    def __init__(self, layers: int, width: int = 64):
        super().__init__()
        self.layers = nn.ModuleList(Modulated(width) for _ in range(layers))

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, condition)
        return x


def loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The squared distance between what comes out and what goes in, as autocast computes it."""
    with torch.autocast("cpu", torch.bfloat16):
        y = model(batch["x"], batch["condition"])
    return functional.mse_loss(y.float(), batch["x"])


def bytes_read(layers: int) -> int:
    """The bytes of the operands of all launches of a step for a GPU."""
    torch.manual_seed(0)
    model = Stack(layers)
    batch = {"x": torch.randn(8, 32, 64), "condition": torch.randn(8, 1, 64)}
    module = trace(model, loss, batch, optimizer=torch.optim.SGD(model.parameters(), 0.1)).module
    run_stages(module, make_context(), until="fused", target="sm_90")
    return sum(
        byte_size(*tensor_spec(value))
        for op in step_function(module).walk()
        if isinstance(op, KernelOp)
        for value in op.operands
    )


def test_gradients_of_later_layers_are_summed_once() -> None:
    """The sum that a layer hands on has two readers in the next one. Neither adds up anew what all later layers gave."""
    few, more, most = (bytes_read(layers) for layers in (2, 3, 4))
    assert most - more == more - few
