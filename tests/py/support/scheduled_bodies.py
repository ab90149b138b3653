"""Loop bodies with each LR scheduler of torch, and all that such a step keeps as one text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from aicf_mlir import CompiledLoopStep, compile_step


class Falling:
    """A rule of the user's with a memory of its own, which torch saves."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, epoch: int) -> float:
        self.seen += 1
        return 1 / (1 + epoch)


class Halved(LRScheduler):
    """A scheduler of the user's."""

    def __init__(self, optimizer: Optimizer, every: int):
        self.every, self.halves = every, list[int]()
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        if self.last_epoch and self.last_epoch % self.every == 0:
            self.halves.append(self.last_epoch)
            return [group["lr"] / 2 for group in self.optimizer.param_groups]
        return [group["lr"] for group in self.optimizer.param_groups]


def sequence(optimizer: Optimizer) -> LRScheduler:
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    return lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.MultiStepLR(optimizer, [1, 2], 0.5)], [2])


def chain(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.5, 3), lr_scheduler.ExponentialLR(optimizer, 0.9)], optimizer
    )


SCHEDULERS: Mapping[str, Callable[[Optimizer], LRScheduler]] = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 3], 0.5),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 7),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "linear": lambda o: lr_scheduler.LinearLR(o, 0.1, total_iters=4),
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.1, total_iters=3),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 9, 2.0),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=9),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-2, 3, cycle_momentum=False),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "lambda_object": lambda o: lr_scheduler.LambdaLR(o, Falling()),
    "multiplicative": lambda o: lr_scheduler.MultiplicativeLR(o, lambda epoch: 0.9),
    "sequence": sequence,
    "chain": chain,
    "users": lambda o: Halved(o, 2),
}


@dataclass
class Scheduled:
    """A compiled body and what it trains."""

    step: CompiledLoopStep
    optimizer: Optimizer
    scheduler: LRScheduler
    batch: dict[str, torch.Tensor]

    @staticmethod
    def of(make: Callable[[Optimizer], LRScheduler], seed: int = 0) -> Scheduled:
        """The same each time, but for the parameters, which `seed` decides."""
        torch.manual_seed(seed)
        model = nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = make(optimizer)
        batch = {"x": torch.ones(2, 3), "t": torch.zeros(2, 2)}

        def body(batch: Any) -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(batch["x"]), batch["t"])
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss

        return Scheduled(compile_step(body, example=[batch], device="cpu"), optimizer, scheduler, batch)

    def train(self, steps: int = 1) -> None:
        for _ in range(steps):
            self.step(self.batch)

    def everything(self) -> str:
        """Each bit that outlives a step, of the device and of Python."""
        arenas = self.step._store.arenas  # pyright: ignore[reportPrivateUsage]
        memory = {role: arena.read(0, arena.nbytes) for role, arena in arenas.items()}
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        return repr(
            (memory, groups, inside(self.scheduler), sorted(self.optimizer.state_dict()["state"].items()))
        )


def inside(value: Any) -> Any:
    """What an object holds, as it is written down."""
    if isinstance(value, LRScheduler | Falling):
        return sorted((key, inside(item)) for key, item in vars(value).items() if key != "optimizer")
    if isinstance(value, list):
        return [inside(item) for item in value]
    if isinstance(value, dict):
        return sorted((key, inside(item)) for key, item in value.items())
    return type(value).__name__ if callable(value) else value
