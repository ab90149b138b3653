"""Forward hooks of the user's are code of the step as `forward` is; what one leaves for others would be left once."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from state_cases import Layer, square
from torch import nn

from aicf_mlir import compile_step, compile_train_step
from aicf_mlir.errors import TraceError


def batch() -> dict[str, torch.Tensor]:
    return {"x": torch.ones(4, 4), "t": torch.zeros(4, 3)}


def compiled(model: nn.Module) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, sgd, loss_fn=square, example=batch(), device="cpu")


def scaled(by: float, module: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor:
    return result * by


def shifted(module: nn.Module, given: Any) -> Any:
    return (given[0] + 1.0,)


class Seeing:
    """A hook that keeps what it sees, as those that look at activations do."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, module: Any, given: Any, result: torch.Tensor) -> None:
        self.seen.append(result.detach())


def in_module(module: Any, given: Any, result: torch.Tensor) -> None:
    module.seen = result.detach()


def test_forward_hooks_are_code_of_the_step() -> None:
    model: Any = Layer(lambda m: 1.0)
    model.layer.register_forward_hook(functools.partial(scaled, 2.0))
    model.register_forward_pre_hook(shifted)
    reference = copy.deepcopy(model)
    step, eager = compiled(model), torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        eager.zero_grad()
        expected = square(reference, batch())
        expected.backward()
        eager.step()
        torch.testing.assert_close(step.train_step(batch()), expected.detach())


@pytest.mark.parametrize("hook", [Seeing(), Seeing().__call__, in_module])
def test_a_forward_hook_leaves_nothing(hook: Any) -> None:
    model: Any = Layer(lambda m: 1.0)
    model.layer.register_forward_hook(hook)
    with pytest.raises(TraceError, match=r"which has hooks, changes .*seen"):
        compiled(model)
    assert not getattr(hook, "seen", None) and not hasattr(model.layer, "seen")


class Features:
    """Hooks that keep a result for the loss of the same step, and what the loss reads."""

    def __init__(self) -> None:
        self.by_name: dict[str, torch.Tensor] = {}
        self.listed: list[torch.Tensor] = []
        self.last: Any = None

    def entry(self, module: Any, given: Any, result: torch.Tensor) -> None:
        self.by_name["first"] = result

    def cut(self, module: Any, given: Any, result: torch.Tensor) -> None:
        self.by_name["first"] = result.detach()

    def attribute(self, module: Any, given: Any, result: torch.Tensor) -> None:
        self.last = result

    def cleared(self, module: Any, given: Any, result: torch.Tensor) -> None:
        self.listed.clear()
        self.listed.append(result)

    def of_module(self, module: Any, given: Any, result: torch.Tensor) -> None:
        module.seen = result


READ: dict[str, Any] = {
    "entry": lambda features, module: features.by_name["first"],
    "cut": lambda features, module: features.by_name["first"],
    "attribute": lambda features, module: features.last,
    "cleared": lambda features, module: features.listed[0],
    "of_module": lambda features, module: module.seen,
}


@pytest.mark.parametrize("is_body", [False, True])
@pytest.mark.parametrize("name", READ)
def test_a_result_that_a_hook_keeps_for_the_loss(name: str, is_body: bool) -> None:
    """As a loss of features or a distillation has it: each call writes it before it reads it."""
    losses: list[list[float]] = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        features, model = Features(), Layer(lambda m: 1.0)
        layer: Any = model.layer
        layer.register_forward_hook(getattr(features, name))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loss(model: nn.Module, batch: Any, features: Any = features, layer: Any = layer) -> torch.Tensor:
            return square(model, batch) + 0.1 * READ[name](features, layer).square().mean()

        def body(
            batch: Any, model: nn.Module = model, optimizer: Any = optimizer, loss: Any = loss
        ) -> torch.Tensor:
            optimizer.zero_grad()
            made = loss(model, batch)
            made.backward()
            optimizer.step()
            return made

        step: Any = body
        if is_compiled and is_body:
            step = compile_step(body, example=batch(), device="cpu")
        elif is_compiled:
            step = compile_train_step(
                model, optimizer, loss_fn=loss, example=batch(), device="cpu"
            ).train_step
        losses.append([float(step(batch())) for _ in range(3)])
    torch.testing.assert_close(*map(torch.tensor, losses))


def test_a_result_that_a_hook_keeps_for_the_next_call() -> None:
    """The loss reads the one before."""
    features, model = Features(), Layer(lambda m: 1.0)
    features.last = torch.zeros(())
    model.layer.register_forward_hook(features.attribute)

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return features.last.square().mean() + square(model, batch)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TraceError, match=r"features\.last"):
        compile_train_step(model, optimizer, loss_fn=loss, example=batch(), device="cpu")
