"""What ranks do in tests of SyncBatchNorm; see `rank_programs.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from rank_programs import adam, batch, digest, furthest, loss_of, told_by
from torch import nn

from aicf_mlir import compile_train_step


class Normalized(nn.Module):
    """Two branches whose statistics need no order among them, of vectors and of images; `norms` makes the layers."""

    def __init__(self, vectors: Any, images: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 12, bias=False), nn.Conv1d(2, 3, 3, bias=False)
        self.of_first, self.of_second = vectors(12), images(3)
        self.last = nn.Linear(18, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        vectors = self.of_first(self.first(x)).tanh()
        images = self.of_second(self.second(x.reshape(-1, 2, 4))).flatten(1).tanh()
        return self.last(torch.cat([vectors, images], 1))


def synchronized(rank: int, count: int) -> dict[str, Any]:
    """SyncBatchNorm on the batches of all ranks, next to BatchNorm on one batch of all of them."""
    found: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "cumulative": {"momentum": None},
        "without parameters": {"affine": False},
        "without statistics": {"track_running_stats": False},
    }
    for name, layer in options.items():
        sync = partial(nn.SyncBatchNorm, **layer)
        ours = Normalized(sync, sync).double()
        theirs = Normalized(partial(nn.BatchNorm1d, **layer), partial(nn.BatchNorm1d, **layer)).double()
        optimizer, other = (torch.optim.SGD(each.parameters(), lr=0.5) for each in (ours, theirs))
        given = [batch(0, each) for each in range(count)]
        mine = (given[rank][0].double(), given[rank][1])
        step = compile_train_step(ours, optimizer, loss_fn=loss_of, example=mine, mesh=dist.group.WORLD)
        losses = []
        for number in range(5):
            given = [batch(number, each) for each in range(count)]
            mine = (given[rank][0].double(), given[rank][1])
            if number == 3:
                step.capture(mine)
            loss = step.train_step(mine) if number < 3 else step.replay(1, inputs=mine)
            other.zero_grad()
            scores = theirs(torch.cat([x for x, _ in given]).double())
            nn.functional.cross_entropy(scores, torch.cat([t for _, t in given])).backward()
            other.step()
            own = nn.functional.cross_entropy(scores.detach().chunk(count)[rank], mine[1])
            losses.append(abs(float(loss) - float(own)))
        found[name] = {
            "losses": max(losses),
            "state": furthest(ours, theirs),
            "digest": digest(ours),
            "collectives": step.ir("step").count("nn.all_"),
        }
    return found


def normalized_elsewhere(rank: int, count: int) -> dict[str, Any]:
    """SyncBatchNorm without a mesh, with a mesh of other processes, and in evaluation, where it is as any other."""
    pair = dist.new_group([0, 1])
    found: dict[str, Any] = {}

    def compiled(name: str, group: Any, mesh: Any, *, training: bool = True) -> None:
        norm = partial(nn.SyncBatchNorm, process_group=group)
        ours = Normalized(norm, norm).train(training)

        def make() -> None:
            step = compile_train_step(ours, adam(ours), loss_fn=loss_of, example=batch(0, rank), mesh=mesh)
            found[f"{name} collectives"] = step.ir("step").count("nn.all_")

        found[name] = told_by(make)

    compiled("no mesh", None, None)
    compiled("evaluation without mesh", None, None, training=False)
    compiled("evaluation", None, dist.group.WORLD, training=False)
    if rank < 2:
        compiled("pair of three", None, pair)
        compiled("pair", pair, pair)
    return found


def normalized_over_others(rank: int, count: int) -> dict[str, Any]:
    """A SyncBatchNorm gets another group after it is compiled."""
    alone = [dist.new_group([each]) for each in range(count)][rank]
    norm = nn.SyncBatchNorm
    ours = Normalized(norm, norm)
    step = compile_train_step(
        ours, adam(ours), loss_fn=loss_of, example=batch(0, rank), mesh=dist.group.WORLD
    )
    step.train_step(batch(0, rank))
    before = digest(ours)
    ours.of_first.process_group = alone
    found = {"told": told_by(lambda: step.train_step(batch(1, rank))), "same": digest(ours) == before}
    ours.of_first.process_group = dist.group.WORLD
    step.train_step(batch(1, rank))
    return {**found, "digest": digest(ours)}
