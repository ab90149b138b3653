"""What ranks do in tests of losses that exchange by themselves; see `rank_programs.py`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from exchange_losses import LOSSES, Centered, Loss, Tensor, clip_without_gradients, dino, experts
from rank_programs import Batch, adam, batch, digest, furthest, plain, told_by
from torch import nn
from torch.distributed.nn import functional
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir import compile_train_step

ROWS = 12

SENSITIVE = {"barlow_twins": 3e-5, "vicreg": 3e-5}
"""The bounds of losses that divide by deviations of few rows."""
CERTIFIED = (clip_without_gradients, dino, experts)
"""Losses of which each rank has a certificate too."""


def compiled(module: nn.Module, loss: Loss, rank: int, **options: Any) -> Any:
    given: dict[str, Any] = {"loss_fn": loss, "example": batch(0, rank, ROWS), **options}
    return compile_train_step(module, adam(module), mesh=dist.group.WORLD, **given)


def exchanging_losses(rank: int, count: int, device: str = "cpu") -> dict[str, Any]:
    """Each loss next to DistributedDataParallel in f64 on the CPU."""
    found: dict[str, Any] = {}
    for name, loss in LOSSES.items():
        first = Centered() if loss is dino else plain()
        theirs = DistributedDataParallel(copy.deepcopy(first).double(), find_unused_parameters=True)
        ours = first.to(device)
        given = [batch(number, rank, ROWS) for number in range(3)]
        here = [(x.to(device), t.to(device)) for x, t in given]
        step, other = compiled(ours, loss, rank, example=here[0]), adam(theirs)
        losses = 0.0
        for number, (x, t) in enumerate(given):
            other.zero_grad()
            expected = loss(theirs, (x.double(), t))
            expected.backward()
            other.step()
            loss_here = float(step.train_step(here[number]))
            value = float(expected.detach())
            losses = max(losses, abs(loss_here - value) / value)
        ended = copy.deepcopy(ours).cpu()
        found[name] = {
            "losses": losses,
            "far": furthest(ended, theirs.module),
            "digest": digest(ended),
            "equal": loss not in CERTIFIED or step.capture(here[0], verify="bitwise").equal,
        }
    return found


def in_bf16(module: nn.Module, given: Batch) -> Tensor:
    """The same loss, of which rows are gathered in bf16."""
    with torch.autocast("cpu", torch.bfloat16):
        return clip_without_gradients(module, given)


def exchanging_options(rank: int, count: int) -> dict[str, Any]:
    """A loss whose text is another on each rank, with options that write other collectives, next to torch in f64."""
    found: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {
        "none": {},
        "state": {"zero": 1},
        "gradients": {"zero": 2},
        "checked": {"check_finite": True},
        "micro": {"accumulate": 2},
        "bf16": {},
    }
    for name, given in options.items():
        ours, loss = plain(), in_bf16 if name == "bf16" else clip_without_gradients
        theirs = DistributedDataParallel(copy.deepcopy(ours).double())
        step, other = compiled(ours, loss, rank, **given), adam(theirs)
        for number in range(4):
            parts = [batch(2 * number + each, rank, ROWS) for each in range(given.get("accumulate", 1))]
            step.train_step(parts if "accumulate" in given else parts[0])
            other.zero_grad()
            losses = [clip_without_gradients(theirs, (x.double(), t)) for x, t in parts]
            (sum(losses[1:], losses[0]) / len(losses)).backward()
            other.step()
        found[name] = {"digest": digest(ours), "far": furthest(ours, theirs.module)}
    return found


OFFSETS = torch.tensor([1.0, 2.0])


def own_tensors(rank: int, count: int) -> dict[str, Any]:
    """A tensor that the loss function reads, and a constant in it, are those of each rank, as with torch."""
    own = OFFSETS + rank

    def loss(module: nn.Module, given: Batch) -> Tensor:
        factors = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0 + dist.get_rank()], dtype=given[0].dtype)
        return F.cross_entropy(module(given[0]), given[1]) * own[0] + (module(given[0]) * factors).mean()

    ours = plain()
    theirs = DistributedDataParallel(copy.deepcopy(ours).double())
    step, other = compiled(ours, loss, rank), adam(theirs)
    for number in range(4):
        x, t = batch(number, rank, ROWS)
        other.zero_grad()
        loss(theirs, (x.double(), t)).backward()
        other.step()
        step.train_step((x, t))
    return {"far": furthest(ours, theirs.module), "own": own.tolist(), "digest": digest(ours)}


def refused_exchanges(rank: int, count: int) -> dict[str, str]:
    """What torch would do otherwise, or only with more than the step has, and ranks that exchange differently."""
    first = dist.new_group([0])

    def with_value(exchange: Callable[[Tensor], object]) -> Loss:
        def loss(module: nn.Module, given: Batch) -> Tensor:
            y = module(given[0])
            other = exchange(y)
            return y.square().mean() + (other.sum() if isinstance(other, Tensor) else 0)

        return loss

    def on_one(y: Tensor) -> Tensor:
        total = y.detach().sum()
        if rank == 0:
            dist.all_reduce(total)
        return total

    def failing_on_one(y: Tensor) -> Tensor:
        total = y.detach().sum()
        dist.all_reduce(total)
        if rank == 0:
            raise ValueError("on this rank")
        return total

    def of_other_sizes(y: Tensor) -> Tensor:
        part = y.detach()[: 3 + rank].clone()
        dist.all_reduce(part)
        return part

    def of_first(y: Tensor) -> Tensor:
        total = y.detach().sum()
        dist.all_reduce(total, group=first)
        return total

    def unequal(y: Tensor) -> Tensor:
        sizes = [5, 7] if rank else [7, 5]
        return functional.all_to_all_single(torch.empty_like(y), y, sizes, sizes)

    refused: dict[str, Callable[[Tensor], object]] = {
        "on one": on_one,
        "other sizes": of_other_sizes,
        "failing": failing_on_one,
        "other group": of_first,
        "unequal parts": unequal,
        "in place": lambda y: dist.all_gather([y] * count, y.detach()),
        "largest": lambda y: functional.all_reduce(y, dist.ReduceOp.MAX),
        "objects": lambda y: dist.all_gather_object([None] * count, 1),
        "gathered on one": lambda y: dist.gather(y.detach(), [y.detach()] * count if rank == 0 else None),
        "sent": lambda y: dist.send(y.detach(), 1 - rank) if rank else dist.recv(y.detach(), 1 - rank),
    }
    found = {
        name: told_by(lambda exchange=exchange: compiled(plain(), with_value(exchange), rank))
        for name, exchange in refused.items()
    }
    alone = plain()
    loss = LOSSES["clip"]
    found["no mesh"] = told_by(
        lambda: compile_train_step(alone, adam(alone), loss_fn=loss, example=batch(0, rank, ROWS))
    )
    return found
