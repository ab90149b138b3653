"""Optimizers of timm, pytorch_optimizer and others, whose steps no rule describes, on a small network of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_optimizer
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from timm.optim import create_optimizer_v2
from torch import nn

from tests.real.case import Batch, Make, Work, looped, trained


def net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 12),
        nn.Tanh(),
        nn.Linear(12, 3),
    )


def images() -> Batch:
    return {"x": torch.randn(8, 2, 4, 4), "t": torch.randint(3, (8,))}


def classified(model: Any, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["t"])


def of(make: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> Make:
    def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return make([*parameters])

    return lambda: trained(net(), images, classified, optimizer)


def of_timm(name: str) -> Make:
    def make() -> Work:
        model = net().train()
        optimizer = create_optimizer_v2(model, opt=name, lr=0.01, weight_decay=0.01)
        return Work(model, images, (optimizer,), loss=classified)

    return make


def sharp(inner: Any, **options: Any) -> Make:
    """SAM in its two steps: the second backward is that of where the first has gone."""

    def make() -> Work:
        model = net()
        optimizer: Any = pytorch_optimizer.SAM(model.parameters(), inner, **options)

        def body(batch: Batch) -> torch.Tensor:
            classified(model, batch).backward()
            optimizer.first_step(zero_grad=True)
            loss = classified(model, batch)
            loss.backward()
            optimizer.second_step(zero_grad=True)
            return loss

        return looped({"net": model}, images, body, optimizer.base_optimizer)

    return make


def accelerated() -> Work:
    """A loop of accelerate, with its own backward and its prepared optimizer."""
    accelerator = Accelerator(cpu=torch.get_default_device().type == "cpu")
    inner = torch.optim.AdamW((model := net()).parameters(), lr=1e-2)
    prepared: Any = accelerator.prepare(model, inner)
    own, optimizer = prepared

    def body(batch: Batch) -> torch.Tensor:
        loss = classified(own, batch)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return looped({"net": model}, images, body, inner)


TIMM = (
    *("adamwlegacy", "adamc", "adabelief", "cadamw", "lion", "clion"),
    *("mars", "nadamw", "rmsproptf", "adafactor"),
)
WRITTEN = ("ADOPT", "AdaBelief", "AdaBound", "AdaFactor", "AdaMod", "Lion", "Tiger")

CASES: dict[str, Make] = {
    **{f"timm {name}": of_timm(name) for name in TIMM},
    **{
        f"pytorch_optimizer {name}": of(lambda ps, name=name: getattr(pytorch_optimizer, name)(ps))
        for name in WRITTEN
    },
    "SAM over SGD": sharp(torch.optim.SGD, lr=0.05, momentum=0.9),
    "SAM over AdamW, adaptive": sharp(torch.optim.AdamW, lr=1e-2, adaptive=True),
    "accelerate": accelerated,
}
