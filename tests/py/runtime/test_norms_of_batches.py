"""Norms over a batch on a GPU: one launch each way, whose blocks wait for each other."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable

import pytest
import torch
from torch import nn

from aicf_mlir import CompiledTrainStep, compile_train_step

Batch = dict[str, torch.Tensor]
ROWS, WIDTH = 4096, 384


def features() -> nn.Module:
    return nn.Sequential(
        nn.Linear(256, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 64), nn.BatchNorm1d(64)
    )


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(16, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    return (model(batch["x"]).float() - batch["t"]).square().mean()


def batch_of(model: nn.Module) -> Batch:
    torch.manual_seed(1)
    shape = (ROWS, 256) if isinstance(model[0], nn.Linear) else (32, 16, 24, 24)
    x = torch.randn(shape)
    x[0] += 40  # like no other: no variance may lose its digits to it
    return {"x": x.cuda(), "t": torch.randn(shape[0], 64).cuda()}


def stepped(model: nn.Module, precision: str | None) -> CompiledTrainStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return compile_train_step(
        model, optimizer, loss_fn=loss_of, example=batch_of(model), device="cuda", precision=precision
    )


def digest(model: nn.Module) -> str:
    state = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(state).hexdigest()


@pytest.mark.gpu
@pytest.mark.parametrize(("made", "precision"), [(features, None), (images, "bf16")])
def test_replays_have_the_bits_of_eager_steps_and_numbers_of_torch(
    made: Callable[[], nn.Module], precision: str | None
) -> None:
    torch.manual_seed(0)
    first = made().cuda()
    models = [first, *(copy.deepcopy(first) for _ in range(3))]
    batch = batch_of(first)
    steps = [stepped(model, precision) for model in models[:3]]
    assert "across " in steps[0].ir("kernel")
    for _ in range(6):
        steps[0].train_step(batch)
    for step in steps[1:]:
        step.warmup(batch)
        step.capture(batch)
    for _ in range(6):  # two graphs in turns, each with gates of its own
        for step in steps[1:]:
            step.replay(inputs=batch)
    torch.cuda.synchronize()
    assert len({digest(model) for model in models[:3]}) == 1
    exact = models[3].double()
    optimizer = torch.optim.SGD(exact.parameters(), lr=0.05, momentum=0.9)
    for _ in range(6):
        optimizer.zero_grad()
        loss_of(exact, {name: value.double() for name, value in batch.items()}).backward()
        optimizer.step()
    limit = 6e-2 if precision else 2e-4
    for (name, value), other in zip(first.state_dict().items(), exact.state_dict().values(), strict=True):
        if value.dtype.is_floating_point:
            # A relu that lets one element more or less through moves a bias of 1e-3 by 3e-7.
            off = (value.double() - other).abs().max() / other.abs().max().clamp(min=1e-2)
            assert off < limit, f"{name} is off by {off:.1e}"


@pytest.mark.gpu
def test_a_capture_is_certified() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 64)).cuda()
    torch.manual_seed(1)
    batch = {"x": torch.randn(1200, 16).cuda(), "t": torch.randn(1200, 64).cuda()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = compile_train_step(model, optimizer, loss_fn=loss_of, example=batch, device="cuda")
    step.warmup(batch)
    step.capture(batch, verify="bitwise")
