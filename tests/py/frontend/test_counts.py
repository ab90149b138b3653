"""Numbers that a forward counts in Python: a loop body counts as torch does, and other steps say that they do not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from aicf_mlir import compile_eval_step, compile_step, compile_train_step

Batch = dict[str, torch.Tensor]


class Counting(nn.Module):
    """Two layers, of which the inner one has Python numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.mean, self.most, self.seen = 0, 0.5, 0, -1
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * self.calls
        self.most = max(self.most, x.shape[0])
        self.seen = x.shape[0]
        return self.layer(x)


def made(device: str) -> tuple[nn.Module, torch.optim.Optimizer, Batch, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), Counting()).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch["x"]).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, optimizer, {"x": torch.randn(8, 4, device=device)}, body


def numbers(model: Any) -> tuple[int, float, int]:
    return model[1].calls, model[1].mean, model[1].most


def test_a_body_counts_as_torch_does(device: str) -> None:
    twin, _, x, eager = made(device)
    model, _, _, body = made(device)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = compile_step(body, example=x, device=device)
    assert numbers(model) == (0, 0.5, 0)
    for _ in range(2):
        torch.testing.assert_close(step(x), eager(x), rtol=1e-5, atol=1e-6)
        assert numbers(model) == numbers(twin)
    step.capture(x)
    assert numbers(model) == numbers(twin)
    step.replay(5)
    for _ in range(5):
        eager(x)
    assert numbers(model) == numbers(twin) and numbers(model)[0] == 7
    model[1].calls = 100  # pyright: ignore[reportAttributeAccessIssue]
    step.replay()
    assert numbers(model)[0] == 101


def test_a_step_of_a_loss_says_that_it_does_not_count(device: str) -> None:
    model, optimizer, x, _ = made(device)
    total = 0

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        nonlocal total
        total += 1
        return model(batch["x"]).square().mean()

    with pytest.warns(UserWarning) as told:
        step = compile_train_step(model, optimizer, loss_fn=loss, example=x, device=device)
    texts = [str(each.message) for each in told]
    for name in ("model.1.calls, from 0", "model.1.mean, from 0.5", "model.1.most, from 0", "total, from 0"):
        assert sum(f"the step changes {name}, at a call" in text for text in texts) == 1, (name, texts)
    assert len(texts) == 4, "nothing reads what is only written"
    assert {each.filename for each in told} == {__file__}
    step.train_step(x)
    assert numbers(model) == (0, 0.5, 0) and total == 0


def test_an_evaluation_says_so_too() -> None:
    model, _, x, _ = made("cpu")
    with pytest.warns(UserWarning, match=r"model\.1\.calls, from 0, at a call, and a compiled step does not"):
        compile_eval_step(model, loss_fn=lambda m, b: m(b["x"]).mean(), example=x, device="cpu")
