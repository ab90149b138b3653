"""What was made from a parameter before it is compiled stays with the old memory: the user is told, and not where nothing is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import mse, regression
from torch import nn

from aicf_mlir import CompiledTrainStep, compile_train_step


def perceptron() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 8))


def compiled(model: nn.Module) -> CompiledTrainStep:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return compile_train_step(model, optimizer, loss_fn=mse, example=regression(4), device="cpu")


ALIASES: dict[str, Callable[[Any], object]] = {
    "state_dict": lambda model: model.state_dict(),
    "data": lambda model: model[2].weight.data,
    "detach": lambda model: model[0].bias.detach(),
    "view": lambda model: [p.view(-1) for p in model.parameters()],
    "the graph of a loss": lambda model: mse(model, regression(4)),
}
NONE: dict[str, Callable[[Any], object]] = {
    "nothing": lambda model: None,
    "copies": lambda model: [p.detach().clone() for p in model.parameters()],
    "the parameters": lambda model: dict(model.named_parameters()),
    "gradients": lambda model: mse(model, regression(4)).backward(),
    "another optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "a loss without its graph": lambda model: mse(model, regression(4)).item(),
}


@pytest.mark.parametrize("name", ALIASES)
def test_is_told(name: str) -> None:
    model = perceptron()
    kept = ALIASES[name](model)
    with pytest.warns(UserWarning, match="looks at the same memory") as told:
        step = compiled(model)
    assert told[0].filename == __file__
    del kept
    before = model.state_dict()["0.weight"].clone()
    step.train_step(regression(4))
    assert not torch.equal(model.state_dict()["0.weight"], before), "what is made anew follows"


@pytest.mark.parametrize("name", NONE)
def test_nothing_is_told(name: str) -> None:
    model = perceptron()
    kept = NONE[name](model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled(model)
    del kept


def test_nothing_moves_twice() -> None:
    """What is made behind the first step stays right through a second one over the same model."""
    model = perceptron()
    first = compiled(model)
    kept = model.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        second = compiled(model)
    for step in (first, second):
        step.train_step(regression(4))
    assert all(torch.equal(kept[name], p) for name, p in model.named_parameters())
