"""The part of data_parallel.py about SyncBatchNorm."""

from __future__ import annotations

from typing import Any

import torch
from rank_steps import DEVICE, Batch, compiled, digest, loss_of, synchronize, told, under_autocast
from torch import nn

STEPS, REPLAYED, ROWS = 10, 5, 16
FAR = 2e-5
"""Beside torch in f64, after all steps. Statistics of one rank alone are farther away, which is checked."""


def net() -> nn.Module:
    """Convolutions without a bias, whose gradient would be rounding alone."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    ).to(DEVICE)


def images(step: int, rank: int) -> Batch:
    """The batch of a rank in a step; each rank has another mean."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(ROWS, 3, 16, 16, generator=draw) + rank
    return x.to(DEVICE), torch.randint(0, 10, (ROWS,), generator=draw).to(DEVICE)


def joined(step: int, ranks: int) -> Batch:
    """The batch of all ranks."""
    x, t = zip(*(images(step, rank) for rank in range(ranks)), strict=True)
    return torch.cat(x), torch.cat(t)


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer without state."""
    return torch.optim.SGD(module.parameters(), lr=0.1)


def synchronized(rank: int, *, replayed: int = REPLAYED, **options: Any) -> tuple[nn.Module, list[float]]:
    """The model after all steps on all ranks, and the mean of their losses in each."""
    module = nn.SyncBatchNorm.convert_sync_batchnorm(net())
    step = compiled(module, sgd(module), images(0, rank), **options)
    assert "nn.all_gather" in step.ir("step")
    eager = range(STEPS - replayed)
    losses = [step.train_step(images(number, rank)).clone() for number in eager]
    if replayed:
        step.capture(images(STEPS - replayed, rank))
    later = range(STEPS - replayed, STEPS)
    losses += [step.replay(inputs=images(number, rank)).clone() for number in later]
    synchronize()
    of_ranks = told([float(loss) for loss in losses])
    return module, [sum(each) / len(each) for each in zip(*of_ranks, strict=True)]


def of_one_gpu(ranks: int) -> tuple[nn.Module, list[float]]:
    """A step of BatchNorm on the batch of all ranks."""
    module = net()
    step = compiled(module, sgd(module), joined(0, ranks), mesh=None)
    losses = [float(step.train_step(joined(number, ranks))) for number in range(STEPS)]
    return module, losses


def of_torch(batches: list[Batch]) -> tuple[nn.Module, list[float]]:
    """BatchNorm in f64."""
    module, losses = net().double(), list[float]()
    optimizer = sgd(module)
    for x, t in batches:
        optimizer.zero_grad()
        loss = loss_of(module, (x.double(), t))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return module, losses


def far(one: tuple[nn.Module, list[float]], other: tuple[nn.Module, list[float]]) -> float:
    """The largest difference of losses, parameters and statistics."""
    tensors = zip(one[0].state_dict().values(), other[0].state_dict().values(), strict=True)
    differences = [float((p.double() - q.double()).abs().max()) for p, q in tensors]
    return max(*differences, *(abs(p - q) for p, q in zip(one[1], other[1], strict=True)))


def batch_norm(rank: int, ranks: int) -> None:
    """Beside one GPU and torch on the batch of all ranks; then runs, replays, autocast and a divided optimizer by bits."""
    torch.backends.cudnn.allow_tf32 = False
    found = synchronized(rank)
    one, exact = of_one_gpu(ranks), of_torch([joined(number, ranks) for number in range(STEPS)])
    own = of_torch([images(number, rank) for number in range(STEPS)])
    distances = far(found, one), far(found, exact), far(one, exact), far(own, exact)
    bits = {digest(found[0]), *(digest(synchronized(rank)[0]) for _ in range(4))}
    eager = digest(synchronized(rank, replayed=0)[0])
    divided = digest(synchronized(rank, zero=1)[0])
    narrow = [
        digest(synchronized(rank, replayed=count, loss_fn=under_autocast)[0]) for count in (0, REPLAYED)
    ]
    every = told([*sorted(bits), eager, divided])
    if rank == 0:
        words = (
            "{:.1e} from one GPU, {:.1e} from torch in f64, where one GPU is {:.1e} and one rank alone {:.1e}"
        )
        print(f"{words.format(*distances)}; 5 runs {sorted(bits)}, eager {eager}, divided {divided}")
    assert max(distances[:3]) < FAR, "other numbers"
    assert distances[3] > 10 * FAR, "the batches of the ranks do not differ enough"
    assert len(bits) == 1, "runs differ"
    assert len({each for of_rank in every for each in of_rank}) == 1, (
        "ranks, replays or a divided optimizer differ"
    )
    assert len({each for of_rank in told(narrow) for each in of_rank}) == 1, "ranks or replays differ in bf16"
