"""Norms differentiated three and four times: as written by parts. Torch 2.11 to 2.13 are wrong there from the third time on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from beside_torch import compiled
from torch import Tensor, nn

from aicf_mlir import compile_train_step

ROWS, WIDTH = 3, 4


def by_parts(x: Tensor) -> Tensor:
    """A layer norm of simple ops."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


class Point(nn.Module):
    """Where a function is differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(
            torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        )

    def forward(self) -> Tensor:
        """The point."""
        return self.x


def along(norm: Callable[[Tensor], Tensor], order: int) -> Callable[[nn.Module, dict[str, Tensor]], Tensor]:
    """The derivative of so high an order along directions of the batch."""

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        x = model()
        value = (torch.tanh(norm(x)) * batch["w"]).sum()
        for number in range(order):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            value = (gradient * batch[f"v{number}"]).sum()
        return value

    return loss


class Biased(nn.Module):
    """Two normalisations with a bias and no weight, over one dimension and over two."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.one, self.two = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(self.linear(x), (8,), None, self.one)
        return F.layer_norm(y.unflatten(1, (2, 4)), (2, 4), None, self.two)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_layer_norm_with_a_bias_and_no_weight(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, x = Biased().to(dtype), torch.randn(5, 8).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = compile_train_step(model, optimizer, loss_fn=lambda m, b: (m(b[0]) ** 3).mean(), example=(x,))
    comparison = step.check((x,), steps=2, exact=True)
    assert comparison, comparison


@pytest.mark.parametrize("order", [2, 3])
def test_layer_norm(order: int) -> None:
    directions = torch.randn(order + 1, ROWS, WIDTH, dtype=torch.float64)
    batch = {"w": directions[0], **{f"v{number}": each for number, each in enumerate(directions[1:])}}
    model, plain = Point(), Point()
    step = compiled(model, along(lambda x: F.layer_norm(x, (WIDTH,)), order), batch)
    value = step.train_step(batch).item()
    wanted = along(by_parts, order)(plain, batch)
    wanted.backward()
    assert value == pytest.approx(wanted.item(), rel=1e-9)
    moved = plain.x.detach() - model.x.detach()
    assert plain.x.grad is not None and moved.abs().max() > 0
    scale = moved.norm() / plain.x.grad.norm()  # the learning rate of `compiled`
    torch.testing.assert_close(moved, plain.x.grad * scale, rtol=1e-8, atol=1e-12)
