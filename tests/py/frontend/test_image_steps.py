"""Steps over images: bytes normalised, layouts, mixtures of images, averages of weights; each as torch does it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import assert_trains
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from aicf_mlir import compile_step, compile_train_step

Batch = dict[str, torch.Tensor]
Loss = Callable[[Any, Batch], torch.Tensor]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.SiLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(x)).mean((2, 3)))


def bytes_of(*shape: int) -> Batch:
    labels = torch.randint(5, (shape[0],))
    return {"x": torch.randint(0, 256, shape, dtype=torch.uint8), "t": labels}


def floats() -> Batch:
    batch = bytes_of(6, 3, 8, 8)
    return {**batch, "x": batch["x"] / 64 - 2, "share": torch.rand(()), "order": torch.randperm(6)}


MEAN, DEVIATION = (torch.tensor(numbers).view(3, 1, 1) for numbers in ([0.48, 0.45, 0.4], [0.22, 0.23, 0.25]))

NORMALIZED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "by numbers": (lambda x: (x.float() / 255 - 0.45) / 0.225, (6, 3, 8, 8)),
    "by tensors, without a cast": (lambda x: (x / 255 - MEAN) / DEVIATION, (6, 3, 8, 8)),
    "in place": (lambda x: x.to(torch.float32).div_(255).sub_(MEAN).div_(DEVIATION), (6, 3, 8, 8)),
    "channels behind": (lambda x: x.permute(0, 3, 1, 2).float() / 255, (6, 8, 8, 3)),
    "flipped, padded and cropped": (
        lambda x: F.pad(x.flip(-1), (1, 1, 1, 1))[..., 1:9, :8].float() / 255,
        (6, 3, 8, 8),
    ),
    "reflected": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect").float() / 255, (6, 3, 8, 8)),
}


@pytest.mark.parametrize("name", NORMALIZED)
def test_bytes_are_normalised_in_the_step(name: str) -> None:
    normalized, shape = NORMALIZED[name]
    torch.manual_seed(0)
    assert_trains(
        Network(), lambda m, b: F.cross_entropy(m(normalized(b["x"])), b["t"]), bytes_of(*shape), 1e-4
    )


def mixed(model: Any, batch: Batch) -> torch.Tensor:
    share, order = batch["share"], batch["order"]
    y = model(share * batch["x"] + (1 - share) * batch["x"][order])
    return share * F.cross_entropy(y, batch["t"]) + (1 - share) * F.cross_entropy(y, batch["t"][order])


def pasted(model: Any, batch: Batch) -> torch.Tensor:
    x = batch["x"].clone()
    x[:, :, 1:5, 2:6] = batch["x"].flip(0)[:, :, 1:5, 2:6]
    y = model(x)
    return 0.75 * F.cross_entropy(y, batch["t"], label_smoothing=0.1) + 0.25 * F.cross_entropy(
        y, batch["t"].flip(0)
    )


def pasted_by_chance(model: Any, batch: Batch) -> torch.Tensor:
    low, places = (batch["share"] * 4).long(), torch.arange(8)
    inside = (places >= low) & (places < low + 4)
    inside = inside[:, None] & inside
    return F.cross_entropy(model(torch.where(inside, batch["x"].flip(0), batch["x"])), batch["t"])


def laid_out(model: Any, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"].contiguous(memory_format=torch.channels_last)), batch["t"])


@pytest.mark.parametrize("loss", [mixed, pasted, pasted_by_chance, laid_out])
def test_mixtures_and_layouts(loss: Loss) -> None:
    torch.manual_seed(0)
    assert_trains(Network(), loss, floats(), 1e-4)


def test_a_model_with_channels_last_stays_one() -> None:
    torch.manual_seed(0)
    network: Any = Network()
    model, batch = network.to(memory_format=torch.channels_last), floats()
    batch["x"] = batch["x"].contiguous(memory_format=torch.channels_last)
    assert_trains(model, laid_out, batch, 1e-4)


def by_hand(average: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters(), strict=True):
            old.mul_(0.9).add_(new, alpha=0.1)
        for old, new in zip(average.buffers(), model.buffers(), strict=True):
            old.copy_(new)


def trained(of_torch: bool, compiles: bool, batches: list[Batch]) -> dict[str, torch.Tensor]:
    """The average of a network after a step for each batch."""
    torch.manual_seed(0)
    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    average: Any = copy.deepcopy(model).requires_grad_(False)
    if of_torch:
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def body(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch["x"]), batch["t"])
        loss.backward()
        optimizer.step()
        average.update_parameters(model) if of_torch else by_hand(average, model)
        return loss

    run: Any = compile_step(body, example=batches[0], device="cpu").train_step if compiles else body
    for batch in batches:
        run(batch)
    return average.state_dict()


@pytest.mark.parametrize("of_torch", [True, False], ids=["AveragedModel", "by hand"])
def test_an_average_of_weights_and_statistics_in_a_loop_body(of_torch: bool) -> None:
    torch.manual_seed(1)
    batches = [floats() for _ in range(3)]
    ours, torchs = (trained(of_torch, compiles, batches) for compiles in (True, False))
    torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-5)


def test_micro_batches_each_update_the_statistics() -> None:
    torch.manual_seed(0)
    model, parts = Network(), [floats() for _ in range(3)]
    beside = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, beside)]

    def loss(model: Any, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(batch["x"]), batch["t"])

    step = compile_train_step(
        model, optimizers[0], loss_fn=loss, example=parts[0], device="cpu", accumulate=3
    )
    step.train_step(parts)
    for part in parts:
        (loss(beside, part) / 3).backward()
    optimizers[1].step()
    torch.testing.assert_close(model.state_dict(), beside.state_dict(), rtol=1e-4, atol=1e-5)
