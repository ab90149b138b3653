"""What is advised instead of an op that is not supported says the same, and compiles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from advised import CASES, Applied, applied

from aicf_mlir import compile_train_step
from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import trace
from aicf_mlir.frontend.advice import ADVICE, advice_for

BATCH = {"scale": torch.tensor(1.25)}


def loss(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return model(batch["scale"])


def trained_in_torch(model: Applied) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient."""
    value = loss(model, BATCH)
    value.backward()
    assert model.x.grad is not None
    return value.detach(), model.x.grad


def test_every_row_has_a_case() -> None:
    assert sorted(ADVICE) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_op_is_refused_with_its_advice(name: str) -> None:
    with pytest.raises(TraceError) as refused:
        trace(applied(name, advised=False), loss, BATCH)
    message = str(refused.value)
    assert f"{name}." in message
    assert f"; write instead: {ADVICE[name]}" in message
    assert "\n" not in message


@pytest.mark.parametrize("name", CASES)
def test_what_is_advised_says_the_same_and_compiles(name: str) -> None:
    expected, gradient = trained_in_torch(applied(name, advised=False))
    torch.testing.assert_close(trained_in_torch(applied(name, advised=True)), (expected, gradient))
    model = applied(name, advised=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = compile_train_step(
        model, optimizer, loss_fn=loss, example=BATCH, device="cpu", keep_gradients=True
    )
    torch.testing.assert_close(step.train_step(BATCH), expected)
    torch.testing.assert_close(step.gradients["x"], gradient)


def test_no_advice_for_what_is_not_in_the_table() -> None:
    assert advice_for("aten.erfinv.default") == ""
