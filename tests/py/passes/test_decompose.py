"""Ops that are written by others: errors of what they are made of, and training with them beside torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from models import mse, regression
from torch import nn as torch_nn
from xdsl.builder import Builder
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Block, Region, SSAValue
from xdsl.irdl import irdl_op_definition
from xdsl.utils.exceptions import PassFailedException

from aicf_mlir import compile_eval_step, compile_train_step
from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.common import UnaryOp
from aicf_mlir.ir.interfaces import DecomposableInterface
from aicf_mlir.passes.decompose import DecomposePass
from aicf_mlir.text.parsing import make_context


@irdl_op_definition
class EndlessOp(UnaryOp, DecomposableInterface):
    """Made of itself."""

    name = "nn.endless"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [None]

    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        return [builder.insert(EndlessOp(self.x)).result]


@irdl_op_definition
class WrongOp(UnaryOp, DecomposableInterface):
    """Made of something of another type."""

    name = "nn.wrong"

    def vjp(self, builder: Builder, cotangents: Sequence[SSAValue]) -> Sequence[SSAValue | None]:
        return [None]

    def decompose(self, builder: Builder, target: str) -> Sequence[SSAValue]:
        return [builder.insert(nn.SumOp(self.x)).result]


def decomposed(op: type[UnaryOp]) -> None:
    block = Block(arg_types=[TensorType(f32, [4])])
    made = op(block.args[0])
    block.add_ops([made, func.ReturnOp(made.result)])
    function = func.FuncOp("f", (block.arg_types, [made.result.type]), Region(block))
    DecomposePass().apply(make_context(), ModuleOp([function]))


def test_an_op_made_of_itself_is_named() -> None:
    with pytest.raises(PassFailedException, match=r"'nn\.endless' is made of itself: it was taken apart 32"):
        decomposed(EndlessOp)


def test_a_value_of_another_type_is_named() -> None:
    with pytest.raises(PassFailedException, match=r"a value of type tensor<f32>, expected tensor<4xf32>"):
        decomposed(WrongOp)


class Standardized(torch_nn.Module):
    """Running statistics as torch.var_mean gives them; the variance reaches the loss, the mean does not."""

    def __init__(self) -> None:
        super().__init__()
        self.running_var: torch.Tensor
        self.register_buffer("running_var", torch.ones(8))
        self.register_buffer("running_mean", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> Any:
        variance, mean = torch.var_mean(x, 0)
        with torch.no_grad():
            self.running_var.lerp_(variance, 0.1)
            self.running_mean.lerp_(mean, 0.1)  # type: ignore[operator]
        return x / (1 + variance + self.running_var)


def test_variance_beside_torch(device: str) -> None:
    torch.manual_seed(0)
    ours = torch_nn.Sequential(torch_nn.Linear(8, 8), Standardized(), torch_nn.Linear(8, 8)).to(device)
    theirs = copy.deepcopy(ours)
    batch = {key: value.to(device) for key, value in regression(6).items()}
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (ours, theirs)]
    step = compile_train_step(ours, optimizers[0], loss_fn=mse, example=batch, device=device)
    for _ in range(5):
        optimizers[1].zero_grad()
        expected = mse(theirs, batch)
        torch.autograd.backward(expected)
        optimizers[1].step()
        torch.testing.assert_close(step.train_step(batch), expected.detach())
    for key, tensor in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], tensor, rtol=1e-4, atol=1e-5)


def test_statistics_of_values_far_from_zero(device: str) -> None:
    """The mean is the nearest number or the next, the variance has the digits of the terms, also at the edges of f32."""
    torch.manual_seed(0)
    x = 1000 + torch.randn(4000, 6) * torch.tensor([10, 1, 0.1, 0.01, 0, 0])
    x[:, 4] = 0.1
    x[3, 5] = float("inf")

    def statistics(model: torch_nn.Module, batch: Any) -> Any:
        x = model(batch["x"])
        return x.sum(), dict(zip("vm", torch.var_mean(x, 0, correction=0), strict=True))

    step = compile_eval_step(
        torch_nn.Identity(), loss_fn=statistics, example={"x": x.to(device)}, device=device
    )
    step.eval_step({"x": x.to(device)})
    variance, mean = (value.cpu().double() for value in step.outputs.values())
    expected = x.double().var(0, correction=0)
    assert torch.equal(variance[4:].isnan(), torch.tensor([False, True]))
    assert variance[4] == 0
    torch.testing.assert_close(variance[:4], expected[:4], rtol=2e-6, atol=0)
    torch.testing.assert_close(mean, x.double().mean(0), rtol=1.2e-7, atol=0)


def unlike(kind: str) -> torch.Tensor:
    """Images whose first ones, of which a sample is taken, are unlike the rest; a kind for each channel of the last four."""
    x = torch.randn(64, 8, 48, 48)
    if kind == "outliers":
        x[0] = 1000
    if kind == "sorted":
        x = x.sort(0)[0] * 3 + 100
    if kind == "constant":
        x[:2] = -0.1
    x[-1, 4, 1, 2] = float("inf")
    x[0, 5, 1, 2] = float("-inf")
    x[0, 6, 1, 2], x[-1, 6, 1, 2] = float("inf"), float("-inf")
    x[-1, 7, 1, 2] = float("nan")
    return x


@pytest.mark.parametrize("kind", ["alike", "outliers", "sorted", "constant"])
def test_statistics_by_a_sample(kind: str, device: str) -> None:
    """They lose no more digits than 32 terms do, and are infinite or NaN where torch's are."""
    torch.manual_seed(0)
    x, dims = unlike(kind), (0, 2, 3)

    def statistics(model: torch_nn.Module, batch: Any) -> Any:
        x = model(batch["x"])
        return x.sum(), dict(zip("vm", torch.var_mean(x, dims, correction=0), strict=True))

    step = compile_eval_step(
        torch_nn.Identity(), loss_fn=statistics, example={"x": x.to(device)}, device=device
    )
    step.eval_step({"x": x.to(device)})
    variance, mean = (value.cpu().double() for value in step.outputs.values())
    exact = x.double()
    torch.testing.assert_close(variance, exact.var(dims, correction=0), rtol=1e-5, atol=0, equal_nan=True)
    torch.testing.assert_close(mean, exact.mean(dims), rtol=1e-5, atol=1e-6, equal_nan=True)
