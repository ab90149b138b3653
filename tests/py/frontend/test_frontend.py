"""The front end against torch: what a traced step computes, and its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.frontend import Traced, trace
from aicf_mlir.frontend.aten_table import TABLE
from aicf_mlir.interpreters import run_function
from aicf_mlir.ir.signature import STATUS, argument_labels, result_labels
from aicf_mlir.ir.verify import verify_module
from aicf_mlir.passes import load_pass
from aicf_mlir.text.parsing import make_context

Batch = Mapping[str, torch.Tensor]


class Net(nn.Module):
    """A function of the input and of some tensors, two of them trained."""

    def __init__(self, body: Callable[[Any, torch.Tensor], torch.Tensor]):
        super().__init__()
        torch.manual_seed(0)
        self.w = nn.Parameter(torch.randn(6, 4))
        self.v = nn.Parameter(torch.randn(4) + 2)
        self.register_buffer("scale", torch.randn(4))
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self, x)


def function_of(module: ModuleOp) -> func.FuncOp:
    function = next(iter(module.ops))
    assert isinstance(function, func.FuncOp)
    return function


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy()


def interpret(traced: Traced, module: ModuleOp, batch: Batch) -> dict[tuple[str, str], np.ndarray]:
    """Results by role and name."""
    tensors = {**batch, **traced.parameters, **traced.buffers}
    values = [
        np.zeros(3, np.int64) if label.role == STATUS else to_numpy(tensors[label.name])
        for label in argument_labels(function_of(module))
    ]
    labels = result_labels(function_of(module))
    return {
        (label.role, label.name): value
        for label, value in zip(labels, run_function(module, values), strict=True)
    }


def assert_agrees(model: nn.Module, loss_fn: Any, batch: Batch, tolerance: float = 1e-12) -> Traced:
    """The traced step and its gradients, interpreted, are what torch computes."""
    traced = trace(model, loss_fn, batch)
    verify_module(traced.module)
    gradient = traced.module.clone()
    load_pass("autodiff")().apply(make_context(), gradient)
    results = interpret(traced, gradient, batch)

    loss = loss_fn(model, batch)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    expected = dict(
        zip(parameters, torch.autograd.grad(loss, list(parameters.values()), allow_unused=True), strict=True)
    )
    np.testing.assert_allclose(results["loss", "loss"], to_numpy(loss), rtol=tolerance, atol=tolerance)
    for name, value in expected.items():
        if value is None:  # pyright: ignore[reportUnnecessaryComparison] - torch declares no None
            assert ("grad", name) not in results
        else:
            np.testing.assert_allclose(
                results["grad", name].astype(np.float64),
                value.double().numpy(),
                rtol=tolerance,
                atol=tolerance * float(value.abs().max()),
                err_msg=name,
            )
    return traced


X = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

BODIES: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "linear": lambda m, x: F.linear(x, m.w.t(), m.v),
    "linear without bias": lambda m, x: F.linear(x, m.w.T),
    "linear of a vector": lambda m, x: F.linear(x.sum((0, 1)), m.w.t(), m.v),
    "matmul 3-D 2-D": lambda m, x: x @ m.w,
    "matmul 2-D 2-D": lambda m, x: torch.mm(x.reshape(15, 6), m.w),
    "matmul 3-D 3-D": lambda m, x: torch.bmm(x, m.w.expand(3, 6, 4)),
    "matmul broadcast": lambda m, x: x.unsqueeze(1) @ m.w.view(1, 1, 6, 4).expand(1, 2, 6, 4),
    "matmul 2-D 3-D": lambda m, x: m.w.t() @ x.transpose(1, 2),
    "matmul matrix vector": lambda m, x: (x @ m.w) @ m.v,
    "matmul vector matrix": lambda m, x: m.v @ (x @ m.w).mT,
    "matmul vector vector": lambda m, x: m.v @ m.w.sum(0) * x,
    "mv, dot, outer": lambda m, x: torch.mv(m.w, m.v) * torch.dot(m.v, m.v) + torch.outer(m.v, m.v).sum() * x,
    "addmm": lambda m, x: torch.addmm(m.v, x.view(15, 6), m.w, beta=0.5, alpha=3),
    "baddbmm": lambda m, x: torch.baddbmm(m.v, x, m.w.expand(3, 6, 4), alpha=2),
    "addmv": lambda m, x: torch.addmv(m.w.sum(1), m.w, m.v, alpha=2) + x,
    "einsum": lambda m, x: torch.einsum("abk,kn->abn", x, m.w),
    "relu": lambda m, x: F.relu(x @ m.w),
    "relu in place": lambda m, x: (x @ m.w).add_(m.v).relu_().mul(2).add_(1),
    "gelu": lambda m, x: F.gelu(x @ m.w),
    "gelu tanh": lambda m, x: F.gelu(x @ m.w, approximate="tanh"),
    "silu": lambda m, x: F.silu(x @ m.w),
    "tanh": lambda m, x: torch.tanh(x @ m.w),
    "sigmoid": lambda m, x: torch.sigmoid(x @ m.w),
    "softmax": lambda m, x: F.softmax(x @ m.w, -1),
    "softmax along other dimensions": lambda m, x: torch.softmax(x @ m.w, 0) + F.softmax(x @ m.w, -2),
    "softmax of a number": lambda m, x: torch.softmax(m.v.sum(), 0) * (x @ m.w),
    "scalars": lambda m, x: 2 - (1 + (3.5 * (x @ m.w) - 4) / 7),
    "integer scalars": lambda m, x: (x @ m.w) * 3 + 2,
    "scalar over tensor": lambda m, x: 1.5 / m.v + (x @ m.w).reciprocal() / m.v,
    "alpha": lambda m, x: torch.sub(torch.add(x @ m.w, m.v, alpha=2), m.v, alpha=0.25),
    "rsub": lambda m, x: torch.rsub(x @ m.w, m.v, alpha=3),
    "broadcasting": lambda m, x: (x @ m.w).mean(1, keepdim=True) * m.v - m.scale + (x @ m.w),
    "broadcast both ways": lambda m, x: m.v.view(4, 1) * m.v.view(1, 4) + (x @ m.w).sum(),
    "neg": lambda m, x: -(x @ m.w),
    "powers": lambda m, x: (x @ m.w) ** 2 + (x @ m.w) ** 3 - m.v**4 + m.v**1 + m.v.square(),
    "view": lambda m, x: (x @ m.w).view(15, 4),
    "view -1": lambda m, x: (x @ m.w).view(-1, 2) * m.v.view(2, 2).sum(1),
    "reshape of a transpose": lambda m, x: (x @ m.w).transpose(0, 2).reshape(4, -1),
    "flatten": lambda m, x: torch.flatten(x @ m.w, 1) * m.v.sum(),
    "unflatten": lambda m, x: (x @ m.w).unflatten(-1, (2, 2)) * m.v.view(2, 2),
    "squeeze, unsqueeze": lambda m, x: (x @ m.w).unsqueeze(0).squeeze() * m.v.unsqueeze(0).squeeze(0),
    "permute": lambda m, x: (x @ m.w).permute(2, -3, 1),
    "movedim": lambda m, x: (x @ m.w).movedim(-1, 0).swapaxes(0, 1),
    "T, mT": lambda m, x: (x @ m.w).mT.contiguous() * m.w.T.sum(1, keepdim=True),
    "expand": lambda m, x: m.v.expand(3, 5, -1) * (x @ m.w),
    "expand_as, broadcast_to": lambda m, x: m.v.expand_as(x @ m.w) + m.v.broadcast_to(5, 4),
    "broadcast_tensors": lambda m, x: sum(torch.broadcast_tensors(x @ m.w, m.v), torch.zeros(4)),
    "sum": lambda m, x: (x @ m.w).sum() * m.v,
    "sum dims": lambda m, x: (x @ m.w).sum((0, -1)) + (x @ m.w).sum(1, keepdim=True).sum((0, 1, 2)),
    "mean": lambda m, x: (x @ m.w).mean() + m.v,
    "mean dims": lambda m, x: (x @ m.w).mean(-2) * m.v + (x @ m.w).mean((0, 1), keepdim=True),
    "variance": lambda m, x: (x @ m.w).var(0) + (x @ m.w).var((0, 1), unbiased=False) + (x @ m.w).var() * m.v,
    "variance and mean": lambda m, x: (
        torch.var_mean(x @ m.w, 1, keepdim=True)[0] * torch.var_mean(m.w, correction=2.5)[1]
    ),
    "sum of a scalar": lambda m, x: m.v.sum().sum() + m.v.sum().mean(0) + x.sum(),
    "sum to another dtype": lambda m, x: (x @ m.w).float().sum(0, dtype=torch.float64),
    "cast": lambda m, x: (x @ m.w).float().to(torch.float64).type_as(m.v),
    "mixed dtypes": lambda m, x: (x @ m.w).float() * m.v,
    "factories": lambda m, x: (
        (x @ m.w) * torch.ones(4) + torch.zeros_like(x @ m.w) + torch.full((5, 1), 2.5) + m.v.new_ones(4)
    ),
    "arange": lambda m, x: (x @ m.w) * torch.arange(4) + torch.linspace(0, 1, 4),
    "literals": lambda m, x: (x @ m.w) * torch.tensor(3.0) + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "dropout off": lambda m, x: F.dropout(x @ m.w, 0.5, training=False) + F.dropout(m.v, 0.0),
    "clone, contiguous": lambda m, x: (x @ m.w).clone().contiguous().requires_grad_(),
    "decomposed": lambda m, x: torch.addcmul(m.v, x @ m.w, m.v, value=0.5).addcdiv(m.v, m.v, value=2),
    "detach of an input": lambda m, x: x.detach() @ m.w + m.scale.detach(),
    "no_grad on an input": lambda m, x: without_gradient(lambda: x * 2) @ m.w,
    "detach": lambda m, x: (x @ m.w) * (x @ m.w).detach() + m.v.detach(),
    "no_grad": lambda m, x: (x @ m.w) * without_gradient(lambda: x @ m.w + m.v),
    "unused results": lambda m, x: used_first(x @ m.w, (x @ m.w).sin(), (x @ m.w).detach()),
}


def without_gradient(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return call()


def used_first(first: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return first


def mean_of_squares(model: nn.Module, batch: Batch) -> torch.Tensor:
    y = model(batch["x"])
    return (y * y).mean()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_ops(body: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
    tolerance = 1e-6 if "float()" in inspect.getsource(body) else 1e-11
    assert_agrees(Net(body).double(), mean_of_squares, {"x": X}, tolerance)


LOSSES: dict[str, tuple[Callable[[nn.Module, Batch], torch.Tensor], str]] = {
    "mse": (lambda m, b: F.mse_loss(m(b["x"]), b["t"]), "float"),
    "mse sum": (lambda m, b: F.mse_loss(m(b["x"]), b["t"], reduction="sum"), "float"),
    "mse none": (lambda m, b: F.mse_loss(m(b["x"]), b["t"], reduction="none").mean(), "float"),
    "mse by hand": (lambda m, b: ((m(b["x"]) - b["t"]) ** 2).mean(), "float"),
    "mse swapped": (lambda m, b: F.mse_loss(b["t"], m(b["x"])), "float"),
    "cross entropy": (lambda m, b: F.cross_entropy(m(b["x"]), b["t"]), "class"),
    "cross entropy sum": (lambda m, b: F.cross_entropy(m(b["x"]), b["t"], reduction="sum"), "class"),
    "smoothing": (lambda m, b: F.cross_entropy(m(b["x"]), b["t"], label_smoothing=0.2), "class"),
    "ignore_index": (lambda m, b: F.cross_entropy(m(b["x"]), b["t"], ignore_index=2), "class"),
    "class dimension inside": (
        lambda m, b: F.cross_entropy(m(b["x"]).view(5, 4, 3), b["t"].view(5, 3), ignore_index=1),
        "class",
    ),
    "one row of logits": (lambda m, b: F.cross_entropy(m(b["x"]).sum(0), b["c"]), "scalar"),
    "two losses": (
        lambda m, b: F.mse_loss(m(b["x"]), b["t"]) + 0.1 * sum((p * p).sum() for p in m.parameters()),
        "float",
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    loss_fn, target = LOSSES[name]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4)).double()
    targets = {
        "float": {"t": torch.randn(15, 4, dtype=torch.float64)},
        "class": {"t": torch.randint(4, (15,))},
        "scalar": {"c": torch.tensor(3)},
    }
    assert_agrees(model, loss_fn, {"x": torch.randn(15, 6, dtype=torch.float64), **targets[target]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 4)).to(dtype)
    batch = {"x": torch.randn(5, 6, dtype=dtype), "t": torch.randn(5, 4, dtype=dtype)}
    loss_fn: Any = lambda m, b: F.mse_loss(m(b["x"]) * 0.3 + 0.1, b["t"])  # noqa: E731
    traced = assert_agrees(model, loss_fn, batch, tolerance=40 * torch.finfo(dtype).eps)
    assert ("nn.cast" in str(traced)) == (dtype.itemsize == 2), (
        "numbers that a half cannot hold stay in float32"
    )


def test_softmax_in_a_wider_type() -> None:
    """The operand is cast, not the result."""
    torch.manual_seed(0)
    model = nn.Linear(6, 4).bfloat16()

    def loss_fn(m: Any, b: Batch) -> torch.Tensor:
        return F.mse_loss(torch.softmax(m(b["x"]), 0, dtype=torch.float32), b["t"])

    batch = {"x": torch.randn(5, 6, dtype=torch.bfloat16), "t": torch.randn(5, 4)}
    traced = assert_agrees(model, loss_fn, batch, tolerance=40 * torch.finfo(torch.bfloat16).eps)
    made = [line for line in str(traced).splitlines() if "nn.softmax " in line]
    assert [line.rpartition(" : ")[2] for line in made] == ["tensor<4x5xf32>"]


def test_mixed_precision_by_hand() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4))

    def loss_fn(m: Any, b: Batch) -> torch.Tensor:
        y = F.linear(b["x"].bfloat16(), m[0].weight.bfloat16(), m[0].bias.bfloat16())
        return F.mse_loss(y.float(), b["t"])

    assert_agrees(model, loss_fn, {"x": torch.randn(5, 6), "t": torch.randn(5, 4)}, tolerance=0.1)


def test_autocast_is_recorded() -> None:
    model = nn.Linear(6, 4)

    def loss_fn(m: Any, b: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = m(b["x"])
        return F.mse_loss(y.float(), b["t"])

    batch = {"x": torch.randn(5, 6), "t": torch.randn(5, 4)}
    traced = assert_agrees(model, loss_fn, batch, tolerance=0.1)
    assert "nn.linear" in str(traced)
    assert "tensor<5x4xbf16>" in str(traced)


def test_the_table_names_ops_that_exist() -> None:
    import_module("transformers.integrations.moe")  # which brings one
    for name in TABLE:
        package, op, overload = name.split(".")
        assert hasattr(getattr(getattr(torch.ops, package), op), overload), name
