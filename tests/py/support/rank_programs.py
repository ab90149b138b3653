"""What the ranks of a group do in tests: each function gets its rank and their number, and returns what it has found."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir import compile_train_step

Batch = tuple[torch.Tensor, torch.Tensor]


def model(features: int = 24) -> nn.Module:
    """With running statistics; the layer before them has no bias, whose gradient would be rounding alone."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, features, bias=False), nn.BatchNorm1d(features), nn.Tanh(), nn.Linear(features, 5)
    )


def plain() -> nn.Module:
    """Without running statistics."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 5))


def loss_of(module: nn.Module, batch: Batch) -> torch.Tensor:
    """The loss of a batch."""
    x, t = batch
    return nn.functional.cross_entropy(module(x), t)


def batch(step: int, rank: int, rows: int = 16) -> Batch:
    """The batch of a rank in a step."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, 8, generator=draw), torch.randint(0, 5, (rows,), generator=draw)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    """An optimizer whose epsilon does not make rounding large."""
    return torch.optim.AdamW(module.parameters(), lr=1e-2, eps=1e-3)


def digest(module: nn.Module) -> str:
    """The bits of all tensors of a module."""
    sha = hashlib.sha256()
    for tensor in module.state_dict().values():
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def furthest(ours: nn.Module, theirs: nn.Module, *, but: str = "none") -> float:
    """The largest difference of two state dicts."""
    pairs = zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for (name, a), b in pairs if but not in name)


def training(rank: int, count: int) -> dict[str, Any]:
    """Beside DistributedDataParallel, wrapped in it and with a mesh; the ranks begin with other weights."""
    found: dict[str, Any] = {}
    for name in ("mesh", "wrapped"):
        ours, theirs = model(), DistributedDataParallel(model())
        if rank:
            with torch.no_grad():
                ours[0].weight.add_(1.0)
        given = DistributedDataParallel(ours) if name == "wrapped" else ours
        options: dict[str, Any] = {} if name == "wrapped" else {"mesh": dist.group.WORLD}
        optimizer, other = adam(ours), adam(theirs)
        step = compile_train_step(
            given,
            optimizer,
            loss_fn=loss_of,
            example=batch(0, rank),
            clip_grad_norm=0.5,
            check_finite=True,
            **options,
        )
        losses = []
        for number in range(12):
            mine = batch(number, rank)
            if number == 5:
                step.capture(mine)
            loss = step.train_step(mine) if number < 5 else step.replay(1, inputs=mine)
            other.zero_grad()
            wanted = loss_of(theirs, mine)
            wanted.backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            other.step()
            losses.append(abs(float(loss) - float(wanted.detach())))
        found[name] = {
            "losses": max(losses),
            "parameters": furthest(ours, theirs.module, but="running"),
            "digest": digest(ours),
            "buffers": furthest(ours, theirs.module) if rank == 0 else 0.0,
        }
    return found


def as_micro_batches(rank: int, count: int) -> dict[str, Any]:
    """The bits of so many micro-batches in one process."""
    found: dict[str, Any] = {}
    cases: dict[str, dict[str, Any]] = {
        "f32": {},
        "bf16": {"precision": "bf16"},
        "clipped": {"clip_grad_norm": 0.1},
        "averaged": {"ema": 0.9},
        "accumulated": {"accumulate": 2},
    }
    for name, options in cases.items():
        ours = plain()
        parts = options.get("accumulate", 1)
        step = compile_train_step(
            ours, adam(ours), loss_fn=loss_of, example=batch(0, rank), mesh=dist.group.WORLD, **options
        )
        for number in range(6):
            mine = [batch(10 * number + part, rank) for part in range(parts)]
            step.train_step(mine if "accumulate" in options else mine[0])
        bits = digest(ours)
        alone = plain()
        if rank == 0 and "accumulate" not in options:
            whole = compile_train_step(
                alone, adam(alone), loss_fn=loss_of, example=batch(0, 0), **{**options, "accumulate": count}
            )
            for number in range(6):
                whole.train_step([batch(10 * number, other) for other in range(count)])
            found[name] = [bits, digest(alone)]
        else:
            found[name] = [bits, bits]
    return found


def of_other_sizes(rank: int, count: int) -> dict[str, Any]:
    """One rank meets a size that is not compiled yet, alone; then all do."""
    ours = plain()
    options: dict[str, Any] = {"loss_fn": loss_of, "example": batch(0, rank), "mesh": dist.group.WORLD}
    step = compile_train_step(ours, adam(ours), further_sizes=2, **options)
    told = [told_by(partial(step.train_step, batch(1, rank, 7 if rank == 0 else 16)))]
    told += [told_by(partial(step.train_step, batch(2, rank, rows))) for rows in (16, 7, 5, 16)]
    return {"told": told, "digest": digest(ours)}


def not_finite(rank: int, count: int) -> dict[str, Any]:
    """A gradient that is NaN where the loss of each rank is finite, then a loss that is NaN on one rank; then all go on."""
    ours = nn.Linear(8, 1, bias=False)
    nn.init.ones_(ours.weight)
    options: dict[str, Any] = {"loss_fn": lambda module, given: module(given[0]).sum().abs().sqrt()}
    given = {"zeros": torch.zeros(16, 8), "nan": torch.full((16, 8), torch.nan), "ones": torch.ones(16, 8)}
    options |= {"example": (given["ones"],), "mesh": dist.group.WORLD, "check_finite": True}
    step = compile_train_step(ours, adam(ours), **options)
    bits, found = digest(ours), dict[str, Any]()
    for name, each in given.items():
        told = told_by(partial(step.train_step, (each if rank == 1 else given["ones"],)))
        found[name] = [told, digest(ours) == bits]
    return {**found, "digest": digest(ours)}


def two_alike(rank: int, count: int) -> dict[str, Any]:
    """Two models with one plan; one rank takes the second where the others take the first."""
    models = [plain(), plain()]
    options: dict[str, Any] = {"loss_fn": loss_of, "example": batch(0, rank), "mesh": dist.group.WORLD}
    steps = [compile_train_step(each, adam(each), **options) for each in models]
    told = [told_by(partial(step.train_step, batch(1, rank))) for step in steps]
    told.append(told_by(partial(steps[rank == 1].train_step, batch(2, rank))))
    return {"told": told, "digests": [digest(each) for each in models]}


def profiled(rank: int, count: int) -> dict[str, Any]:
    """A signal comes to one rank while all measure."""
    ours = plain()
    options: dict[str, Any] = {"loss_fn": loss_of, "example": batch(0, rank), "mesh": dist.group.WORLD}
    step = compile_train_step(ours, adam(ours), **options)
    step.train_step(batch(0, rank))
    bits = digest(ours)
    if rank == 1:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        runs = step.profile(100, batch(1, rank))
        told = "" if runs else "no profile"
    except KeyboardInterrupt:
        told = "interrupted"
    same = digest(ours) == bits
    step.train_step(batch(2, rank))
    return {"told": told, "same": same, "digest": digest(ours)}


def beside_the_model(rank: int, count: int) -> dict[str, Any]:
    """The loss has a parameter and a codebook of its own, which begin otherwise on each rank."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.0 + rank))
            self.code = nn.Parameter(torch.full((5,), float(rank)), requires_grad=False)

        def forward(self, module: nn.Module, given: Batch) -> torch.Tensor:
            x, t = given
            scores = self.scale * module(x) + self.code
            with torch.no_grad():
                self.code.mul_(0.9).add_(scores.mean(0), alpha=0.1)
            return nn.functional.cross_entropy(scores, t)

    ours, loss = plain(), Loss()
    theirs, other = DistributedDataParallel(plain().double()), Loss().double()
    other.scale.data.fill_(1.0)
    optimizers = [
        torch.optim.AdamW([*net.parameters(), each.scale], lr=1e-2, eps=1e-3)
        for net, each in ((ours, loss), (theirs, other))
    ]
    step = compile_train_step(
        ours, optimizers[0], loss_fn=loss, example=batch(0, rank), mesh=dist.group.WORLD
    )
    bits: list[str] = []
    for number in range(8):
        if number == 4:
            step.recompile()
        x, t = batch(number, rank)
        step.train_step((x, t))
        bits += [digest(ours), str(float(loss.scale))]
        optimizers[1].zero_grad()
        other(theirs, (x.double(), t)).backward()
        assert other.scale.grad is not None
        dist.all_reduce(other.scale.grad)
        other.scale.grad /= count
        optimizers[1].step()
    far = max(furthest(ours, theirs.module), furthest(loss, other))
    return {"bits": bits, "code": loss.code.tolist(), "far": far}


def resumed(rank: int, count: int) -> dict[str, Any]:
    """A step with dropout, saved by rank 0 and loaded by all; each rank draws numbers of its own."""
    folder = os.environ["AICF_TEST_FOLDER"]

    def built() -> tuple[nn.Module, Any]:
        ours = nn.Sequential(plain(), nn.Dropout(0.5))
        options: dict[str, Any] = {
            "loss_fn": loss_of,
            "example": batch(0, rank),
            "mesh": dist.group.WORLD,
            "seed": 3,
        }
        return ours, compile_train_step(ours, adam(ours), **options)

    ours, step = built()
    same = (torch.ones(16, 8), torch.zeros(16, dtype=torch.int64))
    first = float(step.train_step(same))
    step.save(f"{folder}/{rank}.ckpt")
    dist.barrier()
    wanted = [float(step.train_step(batch(number, rank))) for number in range(3)]
    bits = digest(ours)
    again, other = built()
    other.load(f"{folder}/0.ckpt")
    found = [float(other.train_step(batch(number, rank))) for number in range(3)]
    more = told_by(lambda: other.load(f"{folder}/{'none' if rank == 1 else rank}.ckpt"))
    return {"first": first, "equal": found == wanted and digest(again) == bits, "missing": more}


def told_by(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001  (it is what is looked at)
        return f"{type(error).__name__}: {error}"
    return "nothing"
