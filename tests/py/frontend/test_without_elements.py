"""Ops that read no element of a parameter: its gradient is zeros as in torch, so its optimizer decays it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aicf_mlir import compile_train_step

OPS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "convolution": lambda w, x, none: functional.conv1d(none[..., None].expand(-1, -1, 5), w[..., None]),
    "transposed": lambda w, x, none: functional.conv_transpose1d(
        none[..., None].expand(-1, -1, 5), w[..., None]
    ),
    "padded": lambda w, x, none: functional.pad(w[:0], (0, 0, 1, 1), value=2.0),
    "index_add": lambda w, x, none: x.index_add(0, none[:, 0].long(), w[:0]),
    "index_copy": lambda w, x, none: x.index_copy(0, none[:, 0].long(), w[:0]),
    "scatter": lambda w, x, none: x.scatter(0, none.long(), w[:0]),
    "scatter_reduce": lambda w, x, none: x.scatter_reduce(0, none.long(), w[:0], "amax"),
    "slice_scatter": lambda w, x, none: x.slice_scatter(w[:0], 0, 1, 1),
    "diagonal_scatter": lambda w, x, none: x.diagonal_scatter(w[0, :0], 3),
    "copy_": lambda w, x, none: (w * 2).copy_(x),
    "zero_": lambda w, x, none: (w * 2).zero_() + x,
    "fill_": lambda w, x, none: (w * 2).fill_(1.5) * x,
    "assigned": lambda w, x, none: whole(w * 2, x),
    "assigned in part": lambda w, x, none: assigned(w * 2, x),
}


def whole(value: Tensor, x: Tensor) -> Tensor:
    """A value that is written as a whole."""
    value[:] = x
    return value


def assigned(value: Tensor, x: Tensor) -> Tensor:
    """A value whose rows are written one after the other."""
    for row in range(3):
        value[row] = x[row]
    return value


class Emptied(nn.Module):
    """An op of a weight, and a number that is trained in any case."""

    def __init__(self, name: str):
        super().__init__()
        torch.manual_seed(0)
        self.name, self.weight, self.scale = (
            name,
            nn.Parameter(torch.randn(3, 3)),
            nn.Parameter(torch.ones(())),
        )

    def forward(self, x: Tensor) -> Tensor:
        return OPS[self.name](self.weight, x, x[:0]).sum() + self.scale * x.mean()


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    """What the model says."""
    return model(batch["x"])


@pytest.mark.parametrize("name", OPS)
def test_its_weight_decays(name: str) -> None:
    batch = {"x": torch.ones(3, 3)}
    torchs, ours = Emptied(name), Emptied(name)
    trained_by = [torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5) for model in (torchs, ours)]
    loss = loss_of(torchs, batch)
    loss.backward()
    trained_by[0].step()
    step = compile_train_step(ours, trained_by[1], loss_fn=loss_of, example=batch, device="cpu")
    torch.testing.assert_close(step.train_step(batch), loss.detach())
    for one, other in zip(torchs.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(other, one)
