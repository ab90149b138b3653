"""Embeddings of many tables whose rows meet each other: few launches, the numbers of torch, tables that lack a row."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from aicf_mlir import OutOfRangeError, compile_train_step, trace
from aicf_mlir.dialects.plan import find_program
from aicf_mlir.stages import make_context, run_stages

ROWS = (7, 30, 5, 300, 41, 12, 9, 64, 100, 3, 17, 29, 33, 10, 8)
Batch = dict[str, Tensor]


class Tables(nn.Module):
    """Tables of different sizes, each with a column of the index."""

    def __init__(self, size: int = 6) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for rows in ROWS)
        self.top = nn.Linear(len(ROWS) * (len(ROWS) - 1) // 2, 1)

    def forward(self, index: Tensor) -> Tensor:
        rows = torch.stack([table(index[:, i]) for i, table in enumerate(self.tables)], 1)
        a, b = torch.tril_indices(len(ROWS), len(ROWS), -1, device=index.device)
        return self.top((rows @ rows.mT)[:, a, b])[:, 0]


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return functional.mse_loss(model(batch["i"]), batch["t"])


def make_batch(device: str, count: int = 40) -> Batch:
    draw = torch.Generator().manual_seed(3)
    columns = [torch.randint(rows, (count,), generator=draw) for rows in ROWS]
    batch = {"i": torch.stack(columns, 1), "t": torch.rand(count, generator=draw)}
    return {name: tensor.to(device) for name, tensor in batch.items()}


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_the_launches_do_not_grow_with_the_tables(target: str) -> None:
    model = Tables()
    made = trace(model, loss_of, make_batch("cpu"), optimizer=torch.optim.SGD(model.parameters(), 0.1))
    run_stages(made.module, make_context(), target=target)
    ops = Counter(launch.op.data for launch in find_program(made.module).launches)
    assert ops["check_index"] == 1
    assert ops["copy"] == 0
    assert ops["scatter_add"] == (len(ROWS) if target == "cpu" else 1)


def test_trains_as_torch_does(device: str) -> None:
    model, batch = Tables().to(device), make_batch(device)
    other = deepcopy(model)
    optimizers = [torch.optim.Adam(each.parameters(), 0.01) for each in (model, other)]
    step = compile_train_step(model, optimizers[0], device=device, example=batch, loss_fn=loss_of)
    for _ in range(5):
        step.train_step(batch)
        optimizers[1].zero_grad()
        loss_of(other, batch).backward()
        optimizers[1].step()
    for found, wanted in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_first_table_that_has_no_such_row_is_named(device: str) -> None:
    model, batch = Tables().to(device), make_batch(device)
    step = compile_train_step(
        model, torch.optim.SGD(model.parameters(), 0.1), device=device, example=batch, loss_fn=loss_of
    )
    bad = {name: tensor.clone() for name, tensor in batch.items()}
    bad["i"][33, 4], bad["i"][1, 11] = 41, -1
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(OutOfRangeError, match=r"tables\.4.*got 41 at \[33"):
        step.train_step(bad)
        step.synchronize()
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
