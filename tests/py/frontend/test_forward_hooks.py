"""Forward hooks of the user's are code of the step as `forward` is; what one leaves anywhere would be left once."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from state_cases import Layer, square
from torch import nn

from aicf_mlir import compile_train_step
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
    with pytest.raises(TraceError, match=r"which has forward hooks, changes .*seen"):
        compiled(model)
    assert not getattr(hook, "seen", None) and not hasattr(model.layer, "seen")
