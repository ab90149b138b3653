"""Comparisons with the classes of tensors, which a trace would answer otherwise than torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from aicf_mlir import TraceError, compile_train_step

Batch = dict[str, Tensor]
BATCH = {"x": torch.linspace(-1, 2, 12).reshape(4, 3), "t": torch.linspace(1, 0, 8).reshape(4, 2)}
KINDS = (int, Tensor)


REFUSED: dict[str, Callable[[Any, Any], bool]] = {
    "is": lambda w, x: type(x) is torch.Tensor,
    "is not": lambda w, x: type(x) is not Tensor,
    "equal": lambda w, x: torch.Tensor == type(x),  # noqa: E721
    "in": lambda w, x: type(x) in (int, torch.Tensor),
    "in a constant": lambda w, x: type(x) in KINDS,
    "class": lambda w, x: x.__class__ is Tensor,
    "parameter": lambda w, x: type(w) is Parameter,
    "several lines": lambda w, x: (
        type(
            x,
        )
        is torch.Tensor
    ),
    "inside": lambda w, x: all(type(each) is nn.Parameter for each in (w,)),
}


def on_a_gpu(x: Tensor) -> bool:
    if x.device.type == "cpu":
        return False
    return all(type(each) is Tensor and each.is_cuda for each in (x,))


TAKEN: dict[str, Callable[[Any, Any], bool]] = {
    "not run": lambda w, x: on_a_gpu(x),
    "isinstance": lambda w, x: isinstance(x, Tensor) and isinstance(w, Parameter),
    "of another": lambda w, x: type(x.shape[0]) is int and type(w) is not int,
    "of both": lambda w, x: type(x) is type(x),
    "a class": lambda w, x: issubclass(type(x), Tensor),
}


def compiled(read: Callable[[Any, Any], bool], model: nn.Linear) -> Any:
    def loss(model: Any, batch: Batch) -> Tensor:
        factor = 2.0 if read(model.weight, batch["x"]) else 3.0
        return F.mse_loss(model(batch["x"]) * factor, batch["t"])

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return compile_train_step(model, optimizer, loss_fn=loss, example=BATCH, device="cpu"), loss


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_of_a_tensor_is_not_compared(name: str) -> None:
    with pytest.raises(TraceError, match="use isinstance"):
        compiled(REFUSED[name], nn.Linear(3, 2))


@pytest.mark.parametrize("name", TAKEN)
def test_what_a_trace_answers_as_torch_is_taken(name: str) -> None:
    model = nn.Linear(3, 2)
    step, loss = compiled(TAKEN[name], model)
    expected = loss(model, BATCH).detach()
    torch.testing.assert_close(step.train_step(BATCH), expected)


class Looks(torch.optim.SGD):
    """Looks for tensors of torch's own classes where the parameters are on a GPU, as optimizers do that choose kernels."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=0.5 if on_a_gpu(p) else 0.1)


def test_an_optimizers_comparison_that_has_not_run() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    step = compile_train_step(model, Looks(model.parameters()), example=BATCH, device="cpu")
    step.train_step(BATCH)
    F.mse_loss(other(BATCH["x"]), BATCH["t"]).backward()
    Looks(other.parameters()).step()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_debugger_sees_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says then what has run."""
    monkeypatch.setattr("sys.gettrace", lambda: "a debugger's")
    with pytest.raises(TraceError, match="use isinstance"):
        compiled(TAKEN["not run"], nn.Linear(3, 2))
