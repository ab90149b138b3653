"""Small models that write into tensors on the way: one step compiled, beside the same step of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aicf_mlir import compile_eval_step, compile_step, compile_train_step

Body = Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of the model, its input and a differentiable tensor, all of `ROWS` x `WIDTH`."""

ROWS, WIDTH = 4, 3
KINDS = ("train step", "loop body", "evaluation")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


class Writer(nn.Module):
    """Two layers, running statistics, and a body that may write to any of what it makes."""

    def __init__(self, body: Body, dtype: torch.dtype = torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("kept", torch.zeros(ROWS, WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))
        self.register_buffer("count", torch.tensor(0))
        self.body = body
        self.to(dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x, self.one(x))


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    """Each element by another weight."""
    y = model(batch["x"])
    return (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).square().mean()


def batch_of(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The input, with both signs."""
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {"x": x.to(dtype)}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """What a parameter becomes says its gradient."""
    return torch.optim.SGD(model.parameters(), lr=1.0)


def state_of(model: nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    """All that a step has computed or changed."""
    return {"loss": loss.detach().clone(), **{name: t.clone() for name, t in model.state_dict().items()}}


def in_torch(model: nn.Module, batch: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    """One step of torch."""
    if kind == "evaluation":
        with torch.no_grad():
            return state_of(model, loss_of(model, batch))
    optimizer = sgd(model)
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return state_of(model, loss)


def compiled(model: nn.Module, batch: dict[str, torch.Tensor], kind: str) -> dict[str, torch.Tensor]:
    """One compiled step."""
    if kind == "evaluation":
        step = compile_eval_step(model, loss_fn=loss_of, example=batch, device="cpu")
        return state_of(model, step.eval_step(batch))
    optimizer = sgd(model)
    if kind == "train step":
        step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cpu")
        return state_of(model, step.train_step(batch))

    def body(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        return loss

    return state_of(model, compile_step(body, example=batch, device="cpu")(batch))


def assert_as_torch(body: Body, kind: str = "train step", dtype: torch.dtype = torch.float64) -> None:
    """The loss, the new parameters and the buffers of a compiled step are torch's."""
    model, batch = Writer(body, dtype), batch_of(dtype)
    wanted = in_torch(copy.deepcopy(model), batch, kind)
    got = compiled(model, batch, kind)
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
