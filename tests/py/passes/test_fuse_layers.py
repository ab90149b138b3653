"""What a layer's launches read does not depend on how many layers there are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from programs import run_pipeline, step_function
from torch import nn
from torch.nn import functional

from aicf_mlir import trace
from aicf_mlir.dialects.kernel_op import KernelOp, tensor_spec
from aicf_mlir.ir.element_types import byte_size
from aicf_mlir.stages import make_context, run_stages
from aicf_mlir.text.parsing import parse_module


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


SUM_AND_CAST = """
func.func @f(%x: tensor<8x32x64xf32>, %y: tensor<8x32x64xf32>) -> (tensor<8x64xf32>, tensor<8x32x64xbf16>) {
  %xy = nn.mul %x, %y : tensor<8x32x64xf32>
  %sum = nn.sum %xy {dims = array<i64: 1>, keepdim = false} : (tensor<8x32x64xf32>) -> tensor<8x64xf32>
  %narrow = nn.cast %x : (tensor<8x32x64xf32>) -> tensor<8x32x64xbf16>
  func.return %sum, %narrow : tensor<8x64xf32>, tensor<8x32x64xbf16>
}"""


def test_what_lies_in_another_order_is_another_launch() -> None:
    """The cast goes through memory in its order, the sum goes across: its rows are columns, and are read side by side."""
    made = run_pipeline(parse_module(SUM_AND_CAST), "decompose,lower,fuse{target=sm_90},dce")
    launches = [op for op in made.walk() if isinstance(op, KernelOp)]
    assert [len(op.results) for op in launches] == [1, 1]
