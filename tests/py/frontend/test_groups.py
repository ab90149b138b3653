"""Rows in groups, as layers of experts have them: how many there are of each, and a product of each with its own matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import OutOfRangeError, TraceError, compile_eval_step, compile_train_step, trace


@pytest.mark.parametrize("bins, low, high", [(5, 0, 6), (7, -1.0, 0.3), (1, -0.5, 0.5), (8, 0, 7)])
def test_a_histogram_is_torchs(bins: int, low: float, high: float) -> None:
    model = nn.Linear(2, 2)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=draw)
    x[:8, 0] = torch.arange(8)
    x[0] = torch.tensor([float("nan"), high])

    def loss(model: Any, batch: Any) -> Any:
        return model(batch["x"]).sum(), {"counts": torch.histc(batch["x"], bins, low, high)}

    step = compile_eval_step(model, loss_fn=loss, example={"x": x}, device="cpu")
    for batch in (x, x * 0.5, torch.randn(40, 2, generator=draw)):
        step.eval_step({"x": batch})
        torch.testing.assert_close(
            step.outputs["counts"], torch.histc(batch, bins, low, high), rtol=0, atol=0
        )


@pytest.mark.gpu
def test_a_histogram_of_integers_is_torchs() -> None:
    """Torch has it on a GPU only; layers of experts count their rows with it there."""
    x = torch.randint(-1, 9, (3, 50), device="cuda", dtype=torch.int32)
    step = compile_eval_step(
        nn.Linear(2, 2).cuda(),
        loss_fn=lambda m, b: (m(b["w"]).sum(), {"counts": torch.histc(b["x"], 8, 0, 7)}),
        example={"x": x, "w": torch.ones(3, 2, device="cuda")},
        device="cuda",
    )
    for batch in (x, x.flip(1), x // 2):
        step.eval_step({"x": batch, "w": torch.ones(3, 2, device="cuda")})
        torch.testing.assert_close(step.outputs["counts"], torch.histc(batch, 8, 0, 7), rtol=0, atol=0)


COUNTED: dict[str, Callable[[dict[str, torch.Tensor]], torch.Tensor]] = {
    "plain": lambda b: torch.bincount(b["i"], minlength=5),
    "method": lambda b: b["i"].bincount(None, 9),
    "narrow": lambda b: b["i"].int().bincount(minlength=5),
    "weighted": lambda b: torch.bincount(b["i"], b["x"][:, 0], minlength=5),
    "weighted in bf16": lambda b: torch.bincount(b["i"], b["x"][:, 0].bfloat16(), minlength=5),
    "weighted by whole numbers": lambda b: torch.bincount(b["i"], b["i"] * 2, 5),
    "of a rank": lambda b: b["x"].topk(2).indices.flatten().bincount(minlength=4) / len(b["x"]),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    batches = [{"x": torch.randn(7, 4), "i": torch.randint(0, 5, (7,))} for _ in range(3)]

    def loss(model: Any, batch: Any) -> Any:
        return model(batch["x"]).sum(), {"counts": COUNTED[name](batch)}

    step = compile_eval_step(nn.Linear(4, 2), loss_fn=loss, example=batches[0], device="cpu")
    for batch in batches:
        step.eval_step(batch)
        torch.testing.assert_close(step.outputs["counts"], COUNTED[name](batch), rtol=0, atol=0)


@pytest.mark.parametrize("value", [5, -1])
def test_a_count_outside_of_the_bins_is_skipped(value: int) -> None:
    batch = {"x": torch.randn(3, 4), "i": torch.tensor([0, value, 1])}

    def loss(model: Any, batch: Any) -> Any:
        return (model(batch["x"]).sum(1) * COUNTED["plain"](batch)[:3]).sum()

    step = compile_eval_step(nn.Linear(4, 2), loss_fn=loss, example=batch, device="cpu")
    with pytest.raises(OutOfRangeError, match=f"expected an index in 0..4, got {value}"):
        step.eval_step(batch)


def test_counts_without_a_number_of_bins_are_refused() -> None:
    batch = {"x": torch.randn(3, 4), "i": torch.tensor([0, 2, 1])}
    with pytest.raises(TraceError, match="shape depends on values"):
        trace(nn.Linear(4, 2), lambda m, b: m(b["x"]).sum() * b["i"].bincount().max(), batch)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 8)
        self.weights = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        y = F.grouped_mm(self.first(x).bfloat16(), self.weights.bfloat16(), offs=ends)
        return y.float()


@pytest.mark.parametrize("ends", [[2, 5, 6, 9], [0, 0, 9, 9], [3, 6, 9, 9]])
def test_a_grouped_product_is_torchs(ends: list[int]) -> None:
    """The second batch has other groups."""
    model = Experts()
    batch = {"x": torch.randn(9, 8), "ends": torch.tensor([1, 4, 4, 9], dtype=torch.int32)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss(model: Any, batch: Any) -> Any:
        return model(batch["x"], batch["ends"]).square().mean()

    step = compile_train_step(model, optimizer, loss_fn=loss, example=batch, device="cpu")
    found = step.check({**batch, "ends": torch.tensor(ends, dtype=torch.int32)}, steps=2)
    assert found.equal, str(found)


def test_bounds_by_values_are_refused() -> None:
    with pytest.raises(TraceError, match="bounds that follow from the values; give min and max"):
        trace(
            nn.Linear(2, 2), lambda m, b: m(b["x"]).sum() + torch.histc(b["x"]).sum(), {"x": torch.ones(3, 2)}
        )
