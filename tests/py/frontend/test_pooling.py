"""Pools of every rank, by windows of one size or of torch's adaptive ones, trained beside torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_torch import compiled
from torch import nn
from windowed import Draw, Fed, assert_layer_trains, loss

from aicf_mlir import compile_train_step

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "max": (lambda: nn.MaxPool2d(2), (2, 3, 6, 7)),
    "max that overlap": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 7, 8)),
    "max by steps of 3": (lambda: nn.MaxPool2d((5, 4), 3, 2), (2, 3, 11, 10)),
    "max with dilation and a ceiling": (lambda: nn.MaxPool2d((2, 3), 2, 1, 2, ceil_mode=True), (2, 3, 7, 8)),
    "max 1d": (lambda: nn.MaxPool1d(3, 2, ceil_mode=True), (2, 3, 8)),
    "max 3d": (lambda: nn.MaxPool3d(2, (1, 2, 2), 1), (1, 2, 3, 5, 4)),
    "max of one image": (lambda: nn.MaxPool2d(2), (3, 6, 7)),
    "average": (lambda: nn.AvgPool2d(2), (2, 3, 6, 7)),
    "average with padding": (lambda: nn.AvgPool2d(3, 2, 1), (2, 3, 7, 8)),
    "average of what is there": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 7, 8)),
    "average with a ceiling": (lambda: nn.AvgPool2d((3, 2), 2, 1, ceil_mode=True), (2, 3, 8, 6)),
    "average with a divisor": (lambda: nn.AvgPool2d(3, 1, 1, divisor_override=5), (2, 3, 5, 4)),
    "average 1d": (lambda: nn.AvgPool1d(3, 2, 1), (2, 3, 8)),
    "average 3d": (lambda: nn.AvgPool3d(2, 2, 1), (1, 2, 3, 5, 4)),
    "of powers": (lambda: nn.LPPool2d(2, 2), (2, 3, 6, 7)),
    "adaptive average": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (2, 3, 6, 8)),
    "adaptive average of ragged parts": (lambda: nn.AdaptiveAvgPool2d((3, None)), (2, 3, 7, 4)),
    "adaptive average of few elements": (lambda: nn.AdaptiveAvgPool2d((5, 7)), (2, 3, 3, 4)),
    "adaptive average 1d": (lambda: nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
    "adaptive average 3d": (lambda: nn.AdaptiveAvgPool3d((2, 1, 3)), (1, 2, 3, 5, 4)),
    "adaptive max": (lambda: nn.AdaptiveMaxPool2d((3, 2)), (2, 3, 6, 8)),
    "adaptive max of ragged parts": (lambda: nn.AdaptiveMaxPool2d((3, 4)), (2, 3, 7, 6)),
    "adaptive max 1d": (lambda: nn.AdaptiveMaxPool1d(3), (2, 3, 8)),
    "adaptive max 3d": (lambda: nn.AdaptiveMaxPool3d((2, 1, 3)), (1, 2, 3, 5, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    assert_layer_trains(*LAYERS[name])


@pytest.mark.parametrize(
    "name", ["max that overlap", "average with padding", "adaptive average of ragged parts"]
)
def test_layer_in_f32(name: str) -> None:
    assert_layer_trains(*LAYERS[name], torch.float32)


def test_any_arguments(program_seed: int) -> None:
    draw = Draw(program_seed)
    kernel, stride, dilation = draw.each(1, 2, 3, 3, 5), draw.each(1, 2, 2, 3), draw.each(1, 1, 2)
    padding = tuple(draw.random.randrange(k // 2 + 1) for k in kernel)
    kind = draw.one("Max", "Max", "Avg", "Avg", "AdaptiveAvg", "AdaptiveMax")
    layer: Any = getattr(nn, f"{kind}Pool{draw.rank}d")
    shape = (draw.one(1, 2, 3), draw.one(1, 2, 3), *draw.spatial(kernel, dilation))
    options: dict[str, Any] = {"ceil_mode": draw.one(True, False)}
    if kind == "Max":
        options["dilation"] = dilation
    elif kind == "Avg":
        options["count_include_pad"] = draw.one(True, False)
        if draw.rank > 1:
            options["divisor_override"] = draw.one(None, None, 7)
    else:
        assert_layer_trains(lambda: layer(draw.each(1, 2, 3, 4)), shape)
        return
    assert_layer_trains(lambda: layer(kernel, stride, padding, **options), shape)


class Sent(nn.Module):
    """The gradient of a pool goes to `x`."""

    def __init__(self, x: torch.Tensor):
        super().__init__()
        self.x = nn.Parameter(x.clone())


def pooled(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return (F.max_pool2d(model.x, 3, 2, 1) * batch["weight"]).nansum()


@pytest.mark.parametrize("name", ["equal", "infinite", "not a number"])
def test_the_first_of_the_largest_has_the_gradient(name: str) -> None:
    """Also where padding is as small as what is largest; of NaNs it is the last."""
    random = torch.Generator().manual_seed(1)
    x = torch.randint(3, (1, 1, 6, 7), generator=random).double()
    if name == "infinite":
        x = torch.full_like(x, -math.inf)
    if name == "not a number":
        x[torch.rand(x.shape, generator=random) < 0.2] = math.nan
    ours, theirs = Sent(x), Sent(x)
    batch = {"weight": torch.linspace(0.5, 1.5, 12, dtype=x.dtype).reshape(1, 1, 3, 4)}
    step = compiled(ours, pooled, batch)
    step.train_step(batch)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05)
    pooled(theirs, batch).backward()
    optimizer.step()
    torch.testing.assert_close(ours.x.detach(), theirs.x.detach(), equal_nan=True)


def test_gradients_and_indices_of_equal_and_special_values(program_seed: int) -> None:
    """Each element of the gradient is that of torch in f64, and each index; half of all windows have equal elements."""
    draw = Draw(program_seed)
    kernel, stride, dilation = draw.each(1, 2, 3, 5), draw.each(1, 2, 3), draw.each(1, 1, 2)
    padding = tuple(draw.random.randrange(k // 2 + 1) for k in kernel)
    ceil, dtype = draw.one(True, False), draw.one(torch.float64, torch.float32, torch.bfloat16)
    shape = (draw.one(1, 2), draw.one(1, 3, 8), *draw.spatial(kernel, dilation))
    values = torch.tensor(draw.one([0, 1, 2], [0.0, -math.inf], [0.0, 1.0, math.inf, -math.inf, math.nan]))
    random = torch.Generator().manual_seed(program_seed)
    x = values[torch.randint(len(values), shape, generator=random)].to(dtype)
    layer: Any = getattr(nn, f"MaxPool{draw.rank}d")
    pool = layer(kernel, stride, padding, dilation, return_indices=True, ceil_mode=ceil)

    def total(model: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        found, index = pool(model.x)
        return (found * (batch["weight"] + index % 3)).nansum()

    ours, theirs = Sent(x), Sent(x.double())
    batch = {"weight": torch.randint(1, 3, pool(x)[0].shape, generator=random)}
    optimizer = torch.optim.SGD(ours.parameters(), lr=1.0)
    compile_train_step(ours, optimizer, loss_fn=total, example=batch, device="cpu").train_step(batch)
    total(theirs, batch).backward()
    assert theirs.x.grad is not None
    expected = theirs.x.detach() - theirs.x.grad
    bits = 8 if dtype is torch.bfloat16 else 24
    torch.testing.assert_close(ours.x.detach().double(), expected, rtol=2.0**-bits, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("rank", "pool"),
    [
        (2, lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)),
        (1, lambda x: F.adaptive_max_pool1d(x, 4, True)),
    ],
)
def test_indices_are_those_of_torch(rank: int, pool: Callable[..., Any]) -> None:
    class Indexed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found, index = pool(x)
            return found * index.to(x.dtype)

    assert_layer_trains(Indexed, (2, 3, *(9, 8)[:rank]))


def test_the_mean_of_numbers_whose_sum_is_beyond_half_precision() -> None:
    model = Fed(nn.AvgPool2d(4), (1, 1, 4, 4)).half()
    with torch.no_grad():
        model.x.fill_(30000.0)
    batch = {"scale": torch.ones((), dtype=torch.float16)}

    def mean(m: Any, b: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return m(b["scale"]).float().mean()

    assert compiled(model, mean, batch).train_step(batch).item() == 30000.0


def test_windows_are_not_in_memory() -> None:
    step = compiled(Fed(nn.MaxPool2d(5, 1, 2), (1, 1, 64, 64)), loss, {"scale": torch.ones(())})
    assert "nn.unfold" not in step.ir("grad") and "nn.window_route" in step.ir("grad")
