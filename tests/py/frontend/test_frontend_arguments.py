"""What a traced step says of the user's code: its arguments and their names, its lines, its function."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_frontend import assert_agrees, function_of
from torch import nn

from aicf_mlir.frontend import TensorSpec, Traced, trace
from aicf_mlir.ir.locations import origin
from aicf_mlir.ir.signature import argument_labels, result_labels

Batch = Mapping[str, torch.Tensor]
X = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def arguments(traced: Traced) -> list[tuple[str, str]]:
    return [(label.role, label.name) for label in argument_labels(function_of(traced.module))]


class Many(nn.Module):
    """A tied, a frozen and a dead parameter; a buffer that is read, one that is not, and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.dead = nn.Parameter(torch.randn(3))
        self.frozen = nn.Parameter(torch.randn(4), requires_grad=False)
        self.decoder = nn.Linear(4, 4, bias=False)
        self.decoder.weight = self.encoder.weight
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        self.offset = torch.randn(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(torch.relu(self.encoder(x - self.mean))) * self.frozen + self.offset


def test_arguments_have_roles_and_the_users_names() -> None:
    model, captured = Many(), torch.randn(4)
    loss_fn: Any = lambda m, b: (m(b["x"]) * captured * b["t"]).mean()  # noqa: E731
    batch = {"x": torch.randn(2, 4), "t": torch.randn(2, 4), "unused": torch.zeros(1, dtype=torch.int32)}
    traced = trace(model, loss_fn, batch)
    assert arguments(traced) == [
        ("input", "x"),
        ("input", "t"),
        ("input", "unused"),
        ("param", "encoder.weight"),
        ("param", "encoder.bias"),
        ("buffer", "frozen"),
        ("buffer", "mean"),
        ("buffer", "captured.0"),
        ("buffer", "offset"),
    ]
    assert traced.parameters == {
        "encoder.weight": model.encoder.weight,
        "encoder.bias": model.encoder.bias,
    }
    assert traced.parameters["encoder.weight"] is model.encoder.weight
    assert traced.buffers["frozen"] is model.frozen
    assert traced.buffers["captured.0"] is captured, "the user may change it: it is read at every step"
    assert traced.buffers["offset"] is model.offset
    assert traced.inputs["x"] == TensorSpec((2, 4), torch.float32, torch.device("cpu"))
    assert [label.role for label in result_labels(function_of(traced.module))] == ["loss"]
    assert_agrees(copy.deepcopy(model).double(), mean_of_squares_with_offset, {"x": X})


def mean_of_squares_with_offset(model: Any, batch: Batch) -> torch.Tensor:
    hidden = torch.relu(model.encoder(batch["x"] - model.mean))
    return (model.decoder(hidden) * model.frozen).square().mean()


def test_only_parameters_of_the_optimizer_are_trained() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    traced = trace(model, B=2, D=4, optimizer=torch.optim.SGD(model[1].parameters(), lr=0.1))
    assert arguments(traced)[2:] == [
        ("param", "1.weight"),
        ("param", "1.bias"),
        ("buffer", "0.weight"),
        ("buffer", "0.bias"),
    ]


def test_sizes_stand_for_a_batch() -> None:
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3), nn.BatchNorm1d(3)).eval()[:3]
    traced = trace(model, B=5, D=6)
    assert {name: spec.shape for name, spec in traced.inputs.items()} == {"x": (5, 6), "t": (5, 3)}
    classes = trace(model, nn.CrossEntropyLoss(label_smoothing=0.1), B=5, D=6)
    assert (classes.inputs["t"].shape, classes.inputs["t"].dtype) == ((5,), torch.int64)
    assert "nn.cross_entropy" in str(classes)
    assert trace(copy.deepcopy(model).double(), B=5, D=6).inputs["x"].dtype == torch.float64


def test_tracing_leaves_the_model_alone() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls, self.last = nn.Linear(4, 4), 0, None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = self.layer(x)
            return self.last

    model, batch = Stateful(), {"x": torch.randn(2, 4)}
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the step changes model.calls, from 0")  # of nothing else
        trace(model, lambda m, b: (m(b["x"]) + m.last).square().mean(), batch)
    assert (model.calls, model.last) == (0, None)
    assert model.training
    assert all(parameter.grad is None and type(parameter) is nn.Parameter for parameter in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_warnings_about_the_users_code_pass() -> None:
    batch = {"x": torch.randn(2, 4), "t": torch.randn(2, 1)}
    with pytest.warns(UserWarning, match="target size"):
        trace(nn.Linear(4, 4), None, batch)


def test_a_loss_module_has_parameters_too() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(2.0))

        def forward(self, model: nn.Module, batch: Batch) -> torch.Tensor:
            return self.weight * F.mse_loss(model(batch["x"]), batch["t"])

    traced = trace(nn.Linear(4, 4), Weighted(), {"x": torch.randn(2, 4), "t": torch.randn(2, 4)})
    assert "loss_fn.weight" in traced.parameters


def test_the_function_has_the_name_that_was_asked_for() -> None:
    for name, expected in {"mlp": "mlp", "mlp-64 x": "mlp_64_x", "3d": "_3d", "": "step"}.items():
        assert function_of(trace(nn.Linear(2, 2), B=1, D=2, name=name).module).sym_name.data == expected


def test_text_is_the_same_every_time() -> None:
    model = Many()
    texts = {str(trace(model, B=2, D=4)) for _ in range(3)}
    assert len(texts) == 1


def line_of(function: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)


class Located(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layer(x)
        return helper(torch.tanh(hidden))


def located_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    difference = model(batch["x"]) - batch["t"]
    return (difference * difference).mean()


def test_ops_know_the_users_lines() -> None:
    traced = trace(Located(), located_loss, {"x": torch.randn(2, 4), "t": torch.randn(2, 4)})
    expected = {
        "nn.linear": line_of(Located.forward, "self.layer(x)"),
        "nn.tanh": line_of(Located.forward, "torch.tanh"),
        "nn.sigmoid": line_of(helper, "torch.sigmoid"),
        "nn.sub": line_of(located_loss, "- batch"),
        "nn.mul": line_of(located_loss, "difference * difference"),
    }
    lines: dict[str, int] = {}
    for op in function_of(traced.module).body.block.ops:
        where = origin(op)
        assert where is not None and Path(where.file) == Path(__file__)
        lines[op.name] = where.line
    assert {name: lines[name] for name in expected} == expected


def test_an_op_without_a_line_of_its_own_has_that_of_the_caller() -> None:
    traced = trace(nn.Sequential(nn.Linear(4, 4)), B=2, D=4)
    here = line_of(test_an_op_without_a_line_of_its_own_has_that_of_the_caller, "trace(nn")
    (op, *_) = function_of(traced.module).body.block.ops
    where = origin(op)
    assert where is not None and where.line == here
