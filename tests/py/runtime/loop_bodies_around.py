"""Bodies of loops with Python around the step: sums, logs, counters, texts, and rates that Python computes."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Around:
    """A model with its optimizer, and what people keep around them."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
        self.opt = torch.optim.SGD(
            [
                {"params": list(self.net[0].parameters())},
                {"params": list(self.net[2].parameters()), "share": 0.5},
            ],
            lr=0.05,
            momentum=0.9,
        )
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.opt, 4)
        self.iteration = 0
        """A number that the loop outside sets."""
        self.step = 0
        self.total = 0.0
        self.count = 0
        self.mean: float | None = None
        self.last: Any = None
        self.log: list[Any] = []
        self.recent: deque[Any] = deque(maxlen=3)
        self.numbers: dict[str, Any] = {"best": math.inf}
        self.shown: list[str] = []
        self.logger = logging.Logger("around")
        self.logger.addHandler(Listed(self.shown))

    def trained(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        self.opt.zero_grad()
        loss = F.mse_loss(self.net(x), t)
        loss.backward()
        self.opt.step()
        return loss

    def rate(self, value: Any) -> None:
        for group in self.opt.param_groups:
            group["lr"] = value * group["share"] if "share" in group else value

    def state(self) -> dict[str, Any]:
        """Everything that a step may change."""
        own = {
            name: value for name, value in vars(self).items() if type(value) in (int, float, str, list, dict)
        }
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.opt.param_groups]
        weights = [p.detach() for p in self.net.parameters()]
        return {**own, "last": self.last, "recent": list(self.recent), "groups": groups, "weights": weights}


class Listed(logging.Handler):
    """Keeps the texts that are logged."""

    def __init__(self, texts: list[str]):
        super().__init__()
        self.texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


Body = Callable[[Around, torch.Tensor, torch.Tensor], Any]


def sums(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t)
    self.total += loss.item() * len(x)
    self.count += len(x)
    return self.total / self.count


def sums_in_a_variable() -> Body:
    total = 0.0

    def body(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
        nonlocal total
        total += self.trained(x, t).item()
        return total

    return body


def logs(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t)
    self.log.append(loss.item())
    self.recent.append({"loss": loss.item(), "rows": len(x)})
    self.numbers.update(loss=loss.item(), tensor=loss.detach())
    self.numbers["best"] = min(self.numbers["best"], loss.item())
    self.last = f"loss {loss.item():>8.4f}, " + str(round(loss.item(), 2))


def counts(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t)
    self.step += 1
    if self.step % 3 == 0:
        self.log.append((self.step, f"{loss.item():.3f} at {self.step}"))
    return loss


def averages(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t).item()
    self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss
    return round(self.mean, 3), f"{self.mean:.4f}"


def says(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t)
    self.logger.info("%s: loss %.4f", self.iteration, loss.item())
    self.logger.info(f"{loss:.3f} and {loss.item():.3f}")


def warms_up(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    """As nanoGPT."""
    if self.iteration < 2:
        rate = 0.1 * (self.iteration + 1) / 3
    else:
        rate = 0.01 + 0.05 * (1 + math.cos(math.pi * (self.iteration - 2) / 6))
    self.rate(rate)
    return self.trained(x, t), rate, self.opt.param_groups[0]["lr"]


def warms_up_by_its_own_counter(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    self.step += 1
    rate = 0.02
    if self.step % 2 == 0:
        rate = 0.5 / self.step if self.step > 5 else 0.01
    self.opt.zero_grad()
    loss = F.mse_loss(self.net(x), t)
    loss.backward()
    self.rate(rate)
    self.opt.step()
    return rate


RATES = [0.1 / (1 + k) for k in range(20)]


def takes_rates_from_a_list(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    for group in self.opt.param_groups:
        group["lr"] = RATES[self.iteration]
        group["weight_decay"] = 0.01 * max(self.iteration - 2, 0)
    return self.trained(x, t)


def takes_rates_by_name(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    self.rate({"at 0": 0.1, "at 2": 0.2}.get(f"at {self.step}", 0.03))
    self.step += 1
    return self.trained(x, t)


def before_and_after(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    if self.iteration < 3:
        self.rate(0.1 * (self.iteration + 1))
    loss = self.trained(x, t)
    for group in self.opt.param_groups:
        group["lr"] *= 0.9
    return loss, self.opt.param_groups[1]["lr"]


def steps_a_scheduler_with_a_fraction(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    loss = self.trained(x, t)
    self.scheduler.step(self.iteration / 4)
    return loss


def by_kind(self: Around, x: torch.Tensor, t: torch.Tensor) -> Any:
    number: Any = self.iteration
    self.rate(0.1 / (1 + number) if isinstance(number, int) else 9.0)
    return self.trained(x, t)


BODIES: list[Callable[[], Body]] = [
    sums_in_a_variable,
    *(
        lambda body=body: body
        for body in (
            sums,
            logs,
            counts,
            averages,
            says,
            warms_up,
            warms_up_by_its_own_counter,
            takes_rates_from_a_list,
            before_and_after,
            steps_a_scheduler_with_a_fraction,
            by_kind,
        )
    ),
]
