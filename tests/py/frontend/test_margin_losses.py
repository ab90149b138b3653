"""Losses of margins beside torch's own kernels, of which torch has decompositions that compute something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from aicf_mlir import DataError, compile_train_step

ROWS, CLASSES = 6, 5
Loss = Callable[[torch.Tensor, Mapping[str, torch.Tensor]], torch.Tensor]


class Scores(nn.Module):
    """Parameters."""

    def __init__(self, scores: torch.Tensor):
        super().__init__()
        self.scores = nn.Parameter(scores)


def several() -> torch.Tensor:
    """Targets of rows that have none to all of the classes, some of them twice; behind the first -1 there is anything."""
    rows = [[], [3], [2, 2], [4, 0, 1], [0, 1, 2, 3], [4, 3, 2, 1, 0]]
    padded = [[*row, -1, 3, 1, 0, 2, 4][:CLASSES] for row in rows]
    return torch.tensor(padded)


def multilabel(**options: Any) -> Loss:
    return lambda scores, batch: F.multilabel_margin_loss(scores, batch["several"], **options)


def multi(**options: Any) -> Loss:
    return lambda scores, batch: F.multi_margin_loss(scores, batch["class"], **options)


def weighed(scores: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return F.multi_margin_loss(scores, batch["class"], p=2, margin=0.7, weight=batch["weight"])


LOSSES: dict[str, Loss] = {
    **{f"multilabel {mode}": multilabel(reduction=mode) for mode in ("mean", "sum", "none")},
    **{f"multi {mode}": multi(reduction=mode) for mode in ("mean", "sum", "none")},
    **{f"multi squared {mode}": multi(reduction=mode, p=2, margin=0.3) for mode in ("mean", "none")},
    "multi weighed": weighed,
    "multilabel of a row": lambda x, b: F.multilabel_margin_loss(x[3], b["several"][3], reduction="none"),
    "multi of a row": lambda x, b: F.multi_margin_loss(x[3], b["class"][3], reduction="none"),
}


def given() -> dict[str, torch.Tensor]:
    classes = torch.tensor([0, 4, 2, 2, 1, 3])
    return {"several": several(), "class": classes, "weight": torch.linspace(0.5, 1.5, CLASSES)}


def trained(loss: Loss, scores: torch.Tensor, steps: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Losses and the scores in the end: of a step, and of torch."""

    def total(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        each = loss(model.scores, batch)
        return (each * torch.arange(1, each.numel() + 1, device=each.device).reshape(each.shape)).sum()

    device, results = scores.device, list[list[torch.Tensor]]()
    batch = {name: value.to(device) for name, value in given().items()}
    for compiled in (True, False):
        model = Scores(scores.clone())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
        if compiled:
            step = compile_train_step(model, optimizer, loss_fn=total, example=batch, device=device.type)
            losses = [step.train_step(batch).clone() for _ in range(steps)]
        else:
            losses = list[torch.Tensor]()
            for _ in range(steps):
                optimizer.zero_grad()
                losses.append(value := total(model, batch))
                value.backward()
                optimizer.step()
        results.append([*(each.detach() for each in losses), model.scores.detach()])
    return results[0], results[1]


@pytest.mark.parametrize("name", LOSSES)
def test_they_train_as_in_torch(name: str, device: str) -> None:
    torch.manual_seed(2)
    ours, torchs = trained(LOSSES[name], torch.randn(ROWS, CLASSES).to(device), 4)
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["multilabel sum", "multi sum", "multi squared none"])
def test_a_score_at_the_margin_has_no_gradient(name: str, device: str) -> None:
    """Where many scores are a whole margin apart, as those of a row of zeros and ones."""
    scores = torch.tensor([[0.0, 1.0, 2.0, 1.0, 0.0]]).repeat(ROWS, 1).to(device)
    scores *= 0.3 if "squared" in name else 1.0
    ours, torchs = trained(LOSSES[name], scores, 1)
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize(
    ("name", "wrong"), [("several", CLASSES), ("several", -2), ("class", CLASSES), ("class", -1)]
)
def test_a_target_out_of_range_is_refused_as_in_torch(name: str, wrong: int) -> None:
    loss = LOSSES["multilabel mean" if name == "several" else "multi mean"]
    batch, model = given(), Scores(torch.randn(ROWS, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.25)
    step = compile_train_step(
        model, optimizer, loss_fn=lambda model, batch: loss(model.scores, batch), example=batch, device="cpu"
    )
    before = model.scores.detach().clone()
    batch[name].view(-1)[3] = wrong
    with pytest.raises((RuntimeError, IndexError), match="target"):
        loss(before, batch)
    with pytest.raises(DataError, match=f"got {wrong} "):
        step.train_step(batch)
    assert torch.equal(model.scores, before)
