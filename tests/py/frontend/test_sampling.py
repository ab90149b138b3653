"""Images read between their elements: grids, antialiased resizes, fractional pools; and layers that are restated for a trace."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import compiled
from torch import nn
from windowed import Draw, Fed, assert_layer_trains, loss

from aicf_mlir import AicfError, GuardError, compile_train_step

MODES = [
    (mode, outside, aligned)
    for mode, outside, aligned in product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False)
    )
]


class Applied(nn.Module):
    """A function of the input and a trained tensor."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], own: torch.Tensor):
        super().__init__()
        self.function, self.own = function, nn.Parameter(own)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.own)


@pytest.mark.parametrize(("mode", "outside", "aligned"), MODES)
def test_grid(mode: str, outside: str, aligned: bool) -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid * 0.7, mode, outside, aligned)

    assert_layer_trains(lambda: Applied(sampled, torch.randn(2, 3, 6, 2)), (2, 3, 5, 4))


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
def test_the_image_itself_has_torchs_gradients_at_its_borders(outside: str) -> None:
    theta = torch.eye(2, 3)[None].repeat(2, 1, 1)

    def sampled(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(theta, list(x.shape), align_corners=True)
        return F.grid_sample(x, grid, "bilinear", outside, True)

    assert_layer_trains(lambda: Applied(sampled, theta), (2, 3, 5, 4))


def test_grid_of_volumes() -> None:
    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid * 0.7, "bilinear", "border", False)

    assert_layer_trains(lambda: Applied(sampled, torch.randn(2, 3, 2, 4, 3)), (2, 2, 3, 4, 5), torch.float32)


def test_a_place_that_is_no_number_finds_no_element() -> None:
    grid = torch.zeros(1, 1, 2, 2)
    grid[0, 0, 1] = torch.nan
    model = Fed(
        Applied(lambda x, grid: F.grid_sample(x, grid, align_corners=True), grid.clone()), (1, 1, 3, 3)
    )
    found = model.layer(model.x).detach()
    step = compiled(model, lambda m, b: m(b["scale"])[..., 0].sum(), {"scale": torch.ones(())})
    assert step.train_step({"scale": torch.ones(())}).item() == found[..., 0].sum().item()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "size", [{"size": (3, 4)}, {"size": (9, 2)}, {"scale_factor": (0.6, 1.7)}, {"size": (5, 7)}], ids=str
)
def test_antialiased(mode: str, size: dict[str, Any]) -> None:
    def resized(x: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, **size, mode=mode, antialias=True) * own

    assert_layer_trains(lambda: Applied(resized, torch.ones(())), (2, 3, 5, 7))


def test_fractional_pools(program_seed: int) -> None:
    draw = Draw(program_seed)
    rank = draw.one(2, 3)
    kernel = tuple(draw.one(1, 2, 3) for _ in range(rank))
    size = tuple(draw.one(1, 2, 3, 4) for _ in range(rank))
    spatial = tuple(k + s + draw.one(0, 2, 3) for k, s in zip(kernel, size, strict=True))
    lead = draw.one((3,), (2, 3), (1, 1))
    samples = torch.rand(*(1, *lead)[-2:], rank, dtype=torch.float64)
    make: Any = nn.FractionalMaxPool2d if rank == 2 else nn.FractionalMaxPool3d
    assert_layer_trains(
        lambda: make(kernel, output_size=size, _random_samples=samples), (*lead, *spatial), torch.float64
    )


def test_a_fractional_pool_draws_by_itself() -> None:
    model = Fed(nn.FractionalMaxPool2d(2, output_ratio=0.6), (2, 3, 9, 8))
    batch = {"scale": torch.ones(())}
    step = compiled(model, loss, batch)
    assert len({step.train_step(batch).item() for _ in range(4)}) > 1


@pytest.mark.parametrize("number", [torch.nan, -3.7, 1e30])
def test_a_fractional_pool_stays_inside_of_the_image(number: float) -> None:
    samples = torch.full((1, 1, 2), number)
    model = Fed(nn.FractionalMaxPool2d(2, output_size=3, _random_samples=samples), (1, 1, 6, 7))
    step = compiled(model, loss, {"scale": torch.ones(())})
    assert step.train_step({"scale": torch.ones(())}).isfinite()


def cumulative() -> tuple[nn.Sequential, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten(), nn.Linear(64, 3)
    return nn.Sequential(*layers), {"x": torch.randn(5, 3, 6, 6), "t": torch.randint(3, (5,))}


def classified(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"]), batch["t"])


def test_running_statistics_are_averages_of_all_batches_without_a_momentum() -> None:
    model, batch = cumulative()
    beside = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, beside)]
    step = compile_train_step(model, optimizers[0], loss_fn=classified, example=batch, device="cpu")
    for number in range(3):
        batch["x"] = batch["x"] * (number + 1)
        step.train_step(batch)
        optimizers[1].zero_grad()
        classified(beside, batch).backward()
        optimizers[1].step()
    for own, torchs in zip(model.buffers(), beside.buffers(), strict=True):
        torch.testing.assert_close(own, torchs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "value"), [("momentum", 0.3), ("eps", 0.5), ("training", False), ("track_running_stats", False)]
)
def test_a_change_of_such_a_layer_is_seen(name: str, value: object) -> None:
    model, batch = cumulative()
    step = compiled(model, classified, batch)
    setattr(model[1], name, value)
    with pytest.raises(GuardError, match=name):
        step.train_step(batch)


def test_a_layer_whose_gradient_is_not_its_own_is_refused() -> None:
    with pytest.raises(AicfError, match=r"CrossMapLRN2d is not supported.*write nn\.LocalResponseNorm"):
        compiled(Fed(nn.CrossMapLRN2d(3), (2, 5, 3, 3)), loss, {"scale": torch.ones(())})
