"""An evaluation step with gradients: the closure of an optimizer that asks for the loss several times in a step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import TraceError, compile_eval_step, compile_step, compile_train_step

Batch = dict[str, torch.Tensor]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def points() -> Batch:
    return {"x": torch.rand(16, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)}


def loss_of(model: nn.Module, b: Batch) -> torch.Tensor:
    """A residual of second order."""
    x = b["x"].requires_grad_()
    u = model(x)
    (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
    return (second[:, 0] + u[:, 0] - first[:, 1]).square().mean() + (u - 1).square().mean()


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs_is_driven_as_in_torch(line_search: str | None) -> None:
    ours, batch = network(), points()
    theirs = copy.deepcopy(ours)
    options: dict[str, Any] = {"lr": 0.5, "max_iter": 6, "history_size": 4, "line_search_fn": line_search}
    of_ours, of_theirs = (torch.optim.LBFGS(each.parameters(), **options) for each in (ours, theirs))
    evaluation = compile_eval_step(ours, loss_fn=loss_of, example=batch, device="cpu", keep_gradients=True)
    calls = [0, 0]

    def closure() -> torch.Tensor:
        calls[0] += 1
        return evaluation.eval_step(batch)

    def reference() -> torch.Tensor:
        calls[1] += 1
        of_theirs.zero_grad()
        loss = loss_of(theirs, {name: tensor.detach() for name, tensor in batch.items()})
        loss.backward()
        return loss

    first = None
    for _ in range(4):
        got, wanted = of_ours.step(closure), of_theirs.step(reference).detach()
        first = wanted if first is None else first
        torch.testing.assert_close(got, wanted, rtol=1e-7, atol=1e-9)
    assert calls[0] == calls[1]
    assert wanted < 0.5 * first  # type: ignore[operator]
    torch.testing.assert_close(
        dict(ours.named_parameters()), dict(theirs.named_parameters()), rtol=1e-6, atol=1e-8
    )


def test_gradients_of_an_evaluation_are_those_of_backward() -> None:
    model, batch = network(), points()
    evaluation = compile_eval_step(model, loss_fn=loss_of, example=batch, device="cpu", keep_gradients=True)
    before = copy.deepcopy(model.state_dict())
    loss = loss_of(model, points())
    wanted = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    evaluation.warmup(batch)
    evaluation.capture(batch)
    for run in (evaluation.eval_step, lambda b: evaluation.replay(inputs=b)):
        for _ in range(2):  # they replace each other
            torch.testing.assert_close(run(batch), loss.detach(), rtol=1e-12, atol=1e-12)
        for parameter, gradient in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-11, atol=1e-13)
        model.zero_grad()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_the_optimizer_itself_is_refused_with_that_advice() -> None:
    model = network()
    lbfgs = torch.optim.LBFGS(model.parameters())

    def body(b: Batch) -> torch.Tensor:
        def closure() -> torch.Tensor:
            lbfgs.zero_grad()
            loss = loss_of(model, b)
            loss.backward()
            return loss

        return lbfgs.step(closure)  # type: ignore[return-value]

    advice = r"compile_eval_step\(model, …, keep_gradients=True\), and call LBFGS.step\(lambda: step.eval_step\(batch\)\)"
    with pytest.raises(TraceError, match=advice):
        compile_train_step(model, lbfgs, loss_fn=loss_of, example=points(), device="cpu")
    with pytest.raises(TraceError, match=advice):
        compile_step(body, example=[points()], device="cpu")


def test_a_loss_without_a_parameter_has_no_gradients() -> None:
    with pytest.raises(TraceError, match="keep_gradients: the loss of @eval depends on no argument"):
        compile_eval_step(
            network(), loss_fn=lambda m, b: b["x"].mean(), example=points(), device="cpu", keep_gradients=True
        )
