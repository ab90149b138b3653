"""What compile_train_step refuses, each with one clear error; model and optimizer stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import OptimizerConfig, mlp, regression
from oracle import assert_same_bits
from torch import nn

from aicf_mlir.errors import AicfError, BindError
from aicf_mlir.step.compile import compile_train_step

ADAM = OptimizerConfig(torch.optim.Adam, {"lr": 1e-2})

BAD_COMPILES: dict[str, tuple[Callable[[nn.Module, torch.optim.Optimizer], Any], type[AicfError], str]] = {
    "device": (
        lambda m, o: compile_train_step(m, o, B=4, D=8, device="meta"),
        BindError,
        r"device 'meta': AICF runs on 'cpu' and 'cuda'",
    ),
    "example and B": (
        lambda m, o: compile_train_step(m, o, example=regression(4), B=4, device="cpu"),
        BindError,
        r"either example= or B= and D=",
    ),
    "empty B": (
        lambda m, o: compile_train_step(m, o, B=[], D=8, device="cpu"),
        BindError,
        r"B= is an empty list; give at least one batch size",
    ),
    "empty example": (
        lambda m, o: compile_train_step(m, o, example=[], device="cpu"),
        BindError,
        r"example= is an empty list; give at least one batch",
    ),
    "no shapes": (lambda m, o: compile_train_step(m, o, device="cpu"), AicfError, r"example=|B="),
    "dtype of the model": (
        lambda m, o: compile_train_step(m, o, B=4, D=8, dtype=torch.float64, device="cpu"),
        BindError,
        r"dtype=torch\.float64, but parameter '0\.weight' is torch\.float32; call model\.to\(",
    ),
    "dtype of the batch": (
        lambda m, o: compile_train_step(
            m, o, example={**regression(4), "x": regression(4)["x"].double()}, device="cpu"
        ),
        AicfError,
        r"float64|f64",
    ),
    "features of the batch": (
        lambda m, o: compile_train_step(m, o, example=regression(4, 5), device="cpu"),
        AicfError,
        r"5.*8|8.*5",
    ),
    "empty batch": (lambda m, o: compile_train_step(m, o, B=0, D=8, device="cpu"), AicfError, r"0"),
    "batch without t": (
        lambda m, o: compile_train_step(m, o, example={"x": torch.zeros(4, 8)}, device="cpu"),
        AicfError,
        r"'t'",
    ),
    "batch with a number": (
        lambda m, o: compile_train_step(m, o, example={"x": torch.zeros(4, 8), "t": 3}, device="cpu"),
        AicfError,
        r"'t'",
    ),
    "loss of several elements": (
        lambda m, o: compile_train_step(
            m, o, loss_fn=lambda model, b: model(b["x"]), example=regression(4), device="cpu"
        ),
        AicfError,
        r"0-d|scalar",
    ),
    "loss that is no tensor": (
        lambda m, o: compile_train_step(
            m, o, loss_fn=lambda model, b: 1.0, example=regression(4), device="cpu"
        ),
        AicfError,
        r"expected one tensor as the result, got float",
    ),
    "optimizer of an unknown kind": (
        lambda m, o: compile_train_step(m, torch.optim.LBFGS(m.parameters()), B=4, D=8, device="cpu"),
        AicfError,
        r"LBFGS",
    ),
    "optimizer of another model": (
        lambda m, o: compile_train_step(
            m, torch.optim.Adam(mlp(8, 17, 8).parameters()), B=4, D=8, device="cpu"
        ),
        AicfError,
        r"optimizer",
    ),
}


def test_a_model_without_values() -> None:
    model = mlp(8, 17, 8).to("meta")
    with pytest.raises(
        BindError, match=r"'0\.weight' is on the meta device and has no values; .*then compile"
    ):
        compile_train_step(model, ADAM(model), B=4, D=8, device="cpu")


@pytest.mark.parametrize("name", BAD_COMPILES)
def test_compile_refuses(name: str) -> None:
    call, error, message = BAD_COMPILES[name]
    model, control = mlp(8, 17, 8), mlp(8, 17, 8)
    optimizer = ADAM(model)
    pointers = [p.data_ptr() for p in model.parameters()]
    with pytest.raises(error, match=message):
        call(model, optimizer)
    assert [p.data_ptr() for p in model.parameters()] == pointers, (
        "a refused compile must leave the model alone"
    )

    step = compile_train_step(model, optimizer, example=regression(4), device="cpu")
    expected = compile_train_step(control, made := ADAM(control), example=regression(4), device="cpu")
    losses = step.train_step(regression(4)), expected.train_step(regression(4))
    assert_same_bits({"loss": losses[0]}, {"loss": losses[1]})
    assert made.state.keys() == set(control.parameters())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_cuda_without_a_gpu() -> None:
    model = mlp(8, 17, 8)
    with pytest.raises(BindError, match=r"device 'cuda': .*use device='cpu'"):
        compile_train_step(model, ADAM(model), B=4, D=8, device="cuda")


def test_a_user_error_in_the_loss_comes_through_unchanged() -> None:
    class Mine(Exception):
        pass

    def loss(model: Any, batch: Any) -> torch.Tensor:
        raise Mine("from the user's code")

    model = mlp(8, 17, 8)
    with pytest.raises((Mine, AicfError), match="from the user's code"):
        compile_train_step(model, ADAM(model), loss_fn=loss, example=regression(4), device="cpu")
