"""Losses that exchange by themselves, each rank with a GPU: torch's numbers, one digest, and bytes as they were given."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rank_steps import DEVICE, adam, compiled, synchronize, told
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "py/support"))
from rank_exchanges import SENSITIVE, exchanging_losses

MOVED: tuple[tuple[torch.dtype, int], ...] = (
    *((torch.float32, numbers) for numbers in (1, 5, 2048, 300_001, 3_000_000, 9_000_004)),
    *((torch.bfloat16, numbers) for numbers in (3, 4096, 4_000_001, 12_000_000)),
    *((torch.int64, 7), (torch.bool, 13), (torch.bool, 5_000_003), (torch.float64, 700_000)),
)
"""Types and numbers of a row."""


def given_by(rank: int, ranks: int, dtype: torch.dtype, numbers: int, step: int) -> torch.Tensor:
    """What a rank gives: a row for each rank."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, 2 if dtype == torch.bool else 100, (ranks, numbers), generator=draw).to(dtype)


def moved(rank: int, ranks: int, dtype: torch.dtype, numbers: int) -> None:
    """Gathered rows and exchanged ones are those that the ranks have given, in steps of other batches, replayed too."""

    def loss(module: nn.Module, x: torch.Tensor) -> Any:
        rows, gathered = torch.empty_like(x), torch.empty((ranks, *x.shape), dtype=x.dtype, device=x.device)
        every: Any = dist
        every.all_to_all_single(rows, x)
        every.all_gather_into_tensor(gathered, x)
        return module(x[:1, :1].float()).square().mean(), {"rows": rows, "gathered": gathered}

    module = nn.Linear(1, 1).to(DEVICE)
    step = compiled(module, adam(module), given_by(rank, ranks, dtype, numbers, 0).to(DEVICE), loss_fn=loss)
    for number in range(4):
        x = given_by(rank, ranks, dtype, numbers, number).to(DEVICE)
        if number < 2:
            step.train_step(x)
        elif number == 2:
            step.capture(x)
            step.replay(sync=True)
        else:
            step.replay(3, inputs=x, sync=True)
        synchronize()
        given = torch.stack([given_by(each, ranks, dtype, numbers, number) for each in range(ranks)])
        assert torch.equal(step.outputs["gathered"].cpu(), given), (dtype, numbers, number)
        assert torch.equal(step.outputs["rows"].cpu(), given[:, rank]), (dtype, numbers, number)


def exchanges(rank: int, ranks: int) -> None:
    """All of it on one rank."""
    for dtype, numbers in MOVED:
        moved(rank, ranks, dtype, numbers)
    if rank == 0:
        print(f"{len(MOVED)} sizes and types came as they were given, in 5 steps each")
    found = exchanging_losses(rank, ranks, DEVICE)
    for name, each in found.items():
        bound = SENSITIVE.get(name, 2e-6)
        assert each["equal"], name
        assert each["far"] < bound and each["losses"] < bound, (name, each)
        assert len(set(told(each["digest"]))) == 1, name
    if rank == 0:
        far = max(each["far"] for name, each in found.items() if name not in SENSITIVE)
        print(f"{len(found)} losses at most {far:.1e} from torch in f64: {', '.join(found)}")
