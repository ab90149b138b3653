"""What the parts of data_parallel.py share: a model, its batches, the step of all ranks, and bits to compare.

Environment: DEVICE "cuda" or "cpu", WIDTH of the layers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from aicf_mlir import compile_train_step

DEVICE = os.environ.get("DEVICE", "cuda")
WIDTH = int(os.environ.get("WIDTH", "256"))
Batch = tuple[torch.Tensor, torch.Tensor]


def mlp(deep: int = 1) -> nn.Module:
    """With `deep` square layers."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(64, WIDTH), nn.GELU()]
    for _ in range(deep):
        layers += [nn.Linear(WIDTH, WIDTH), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10)).to(DEVICE)


def batch(step: int, rank: int, rows: int = 64) -> Batch:
    """The batch of a rank in a step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x, t = torch.randn(rows, 64, generator=draw), torch.randint(0, 10, (rows,), generator=draw)
    return x.to(DEVICE), t.to(DEVICE)


def loss_of(module: nn.Module, given: Batch) -> torch.Tensor:
    """In the type of the module."""
    return nn.functional.cross_entropy(module(given[0]), given[1])


def under_autocast(module: nn.Module, given: Batch) -> torch.Tensor:
    """With products in bf16."""
    with torch.autocast(DEVICE, torch.bfloat16):
        return loss_of(module, given)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer whose epsilon does not make rounding large."""
    return torch.optim.AdamW(module.parameters(), lr=1e-2, eps=1e-3)


def compiled(module: nn.Module, optimizer: torch.optim.Optimizer, given: Any, **options: Any) -> Any:
    """A step of all ranks, or of this process alone with `mesh=None`."""
    options = {"loss_fn": loss_of, "mesh": dist.group.WORLD, **options}
    return compile_train_step(module, optimizer, example=given, device=DEVICE, **options)


def synchronize() -> None:
    """Wait for the GPU."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """The bits of tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def digest(module: nn.Module) -> str:
    """The bits of parameters and buffers."""
    return digest_of(module.state_dict().values())


def digest_of_state(optimizer: torch.optim.Optimizer) -> str:
    """The bits of what this rank holds of the optimizer's state."""
    return digest_of(
        value
        for group in optimizer.param_groups
        for p in group["params"]
        for value in optimizer.state.get(p, {}).values()
        if isinstance(value, torch.Tensor)
    )


def told(mine: Any) -> list[Any]:
    """What each rank says, once all are here."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    return every
