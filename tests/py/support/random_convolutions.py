"""Random train steps of convolutional networks: ragged sizes, groups, dilations, paddings, pools, norms and resizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from models import Batch
from random_layers import Draw
from random_programs import Program, inputs_of, loss_from, program
from torch import nn

Shape = tuple[int, ...]

MOST = 400
"""Elements of an image between two layers, at most, before it is resized."""

CONVOLUTIONS: tuple[Any, ...] = (None, nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED: tuple[Any, ...] = (None, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
MAX: tuple[Any, ...] = (None, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
AVERAGE: tuple[Any, ...] = (None, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
POWERS: tuple[Any, ...] = (None, nn.LPPool1d, nn.LPPool2d, nn.LPPool3d)
ADAPTIVE_MAX: tuple[Any, ...] = (None, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
ADAPTIVE: tuple[Any, ...] = (None, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
BATCH_NORMS: tuple[Any, ...] = (None, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
INSTANCE_NORMS: tuple[Any, ...] = (None, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
SMOOTH = (None, "linear", "bilinear", "trilinear")


class Beside(nn.Module):
    """x + inner(x)."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Padded(nn.Module):
    """Another padding on each side, in one of torch's modes."""

    def __init__(self, pads: Sequence[int], mode: str):
        super().__init__()
        self.pads, self.mode = list(pads), mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x, self.pads, self.mode)

    def extra_repr(self) -> str:
        return f"{self.pads}, {self.mode!r}"


class Network:
    """Layers that are drawn one behind the other, for images of `shape`: channels, then sizes."""

    def __init__(self, draw: Draw, shape: Shape):
        self.draw, self.channels, self.spatial = draw, shape[0], shape[1:]
        self.rank = len(self.spatial)
        self.layers: list[nn.Module] = []

    def each(self, *choices: int) -> Shape:
        return tuple(self.draw.choice(choices) for _ in self.spatial)

    def add(self, layer: nn.Module) -> None:
        """Add a layer, and see what it makes of an image."""
        self.layers.append(layer)
        with torch.no_grad():
            made = layer.eval()(torch.zeros(2, self.channels, *self.spatial))
        layer.train()
        self.channels, self.spatial = made.shape[1], tuple(made.shape[2:])

    def kernel(self, *choices: int) -> Shape:
        return tuple(min(k, size) for k, size in zip(self.each(*choices), self.spatial, strict=True))

    def convolution(self) -> None:
        kernel, stride = self.kernel(1, 1, 2, 3, 3, 5), self.each(1, 1, 1, 2, 3)
        dilation = tuple(
            self.draw.choice((1, 2)) if 2 * (k - 1) < size else 1
            for k, size in zip(kernel, self.spatial, strict=True)
        )
        groups = self.draw.choice([n for n in (1, 1, 2, 3, self.channels) if self.channels % n == 0])
        padding: Any = tuple(self.draw.randrange(k) for k in kernel)
        if set(stride) == {1} and self.draw.random() < 0.4:
            padding = "same"
        mode = self.draw.choice(("zeros",) * 4 + ("reflect", "replicate", "circular"))
        if padding != "same" and mode == "reflect":
            padding = tuple(min(p, size - 1) for p, size in zip(padding, self.spatial, strict=True))
        self.add(
            CONVOLUTIONS[self.rank](
                self.channels,
                groups * self.draw.choice((1, 1, 2, 3)),
                kernel,
                stride,
                padding,
                dilation,
                groups,
                self.draw.random() < 0.7,
                "zeros" if padding == "same" else mode,
            )
        )

    def transposed(self) -> None:
        kernel, stride = self.each(1, 2, 3), self.each(1, 2, 3)
        padding = tuple(self.draw.randrange((k + 1) // 2) for k in kernel)
        more = tuple(self.draw.randrange(s) for s in stride)
        groups = self.draw.choice([n for n in (1, 1, 2) if self.channels % n == 0])
        outputs = groups * self.draw.choice((1, 2))
        self.add(TRANSPOSED[self.rank](self.channels, outputs, kernel, stride, padding, more, groups))

    def pool(self) -> None:
        kernel = self.kernel(1, 2, 2, 3)
        options: dict[str, Any] = {"stride": self.each(1, 2, 3), "ceil_mode": self.draw.random() < 0.3}
        kind = self.draw.choice((MAX, MAX, AVERAGE, AVERAGE, ADAPTIVE, ADAPTIVE_MAX, POWERS))
        if kind in (ADAPTIVE, ADAPTIVE_MAX):
            self.add(kind[self.rank](self.each(1, 2, 3)))
            return
        if kind is POWERS:
            one = self.rank == 1  # torch takes a number there
            stride = options["stride"]
            self.add(kind[self.rank](2, *((kernel[0], stride[0]) if one else (kernel, stride))))
            return
        options["padding"] = tuple(self.draw.randrange(k // 2 + 1) for k in kernel)
        if kind is AVERAGE:
            options["count_include_pad"] = self.draw.random() < 0.5
        self.add(kind[self.rank](kernel, **options))

    def norm(self) -> None:
        groups = self.draw.choice([n for n in (1, 2, 3) if self.channels % n == 0])
        momentum = self.draw.choice((0.1, 0.3, None))
        rows: list[Callable[[], nn.Module]] = [
            lambda: BATCH_NORMS[self.rank](self.channels, momentum=momentum, affine=self.draw.random() < 0.8),
            lambda: nn.GroupNorm(groups, self.channels),
        ]
        if math.prod(self.spatial) > 1:
            rows.append(lambda: INSTANCE_NORMS[self.rank](self.channels, affine=self.draw.random() < 0.5))
        self.add(self.draw.choice(rows)())

    def resize(self) -> None:
        if math.prod(self.spatial) * self.channels * 2**self.rank > MOST:
            self.pool()
            return
        mode = self.draw.choice(("nearest", "nearest-exact", SMOOTH[self.rank]))
        self.add(nn.Upsample(size=tuple(n + self.draw.randrange(1, n + 1) for n in self.spatial), mode=mode))

    def pad(self) -> None:
        mode = self.draw.choice(("constant", "reflect", "replicate", "circular"))
        most = [min(2, size - (mode == "reflect")) for size in reversed(self.spatial)]
        self.add(Padded([self.draw.randrange(n + 1) for n in most for _ in range(2)], mode))

    def beside(self) -> None:
        kernel = self.each(1, 3)
        inner = CONVOLUTIONS[self.rank](self.channels, self.channels, kernel, padding="same")
        self.add(Beside(nn.Sequential(inner, self.draw.choice((nn.ReLU, nn.SiLU))())))

    def activation(self) -> None:
        self.add(self.draw.choice((nn.ReLU, nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Sigmoid))())

    def made(self, classes: int) -> nn.Module:
        """The layers so far, and a linear head."""
        if self.draw.random() < 0.5:
            self.add(ADAPTIVE[self.rank](1))
        features = self.channels * math.prod(self.spatial)
        return nn.Sequential(*self.layers, nn.Flatten(), nn.Linear(features, classes))


def network(seed: int, shape: Shape, classes: int) -> nn.Module:
    """The network of a seed."""
    torch.manual_seed(seed)
    draw = Draw(seed)
    made = Network(draw, shape)
    steps = (made.convolution, made.convolution, made.transposed, made.pool, made.norm, made.norm)
    for _ in range(draw.choice((1, 2, 2, 3))):
        made.convolution()
        for step in draw.sample((*steps, made.resize, made.pad, made.beside, made.activation), 2):
            step()
    return made.made(classes)


def convolutional(seed: int) -> Program:
    """The convolutional program of a seed: optimizer, options and types are those of the other program of the seed."""
    base, draw = program(seed), Draw(seed ^ 0x5EED)
    if (
        base.dtype is torch.float16
    ):  # a scaled loss overflows at once, and torch's optimizer has no state then
        base = replace(base, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    narrow = base.options.low is not None or base.dtype.itemsize == 2
    rank = draw.choice((1, 2, 2, 2, 2 if narrow else 3))  # torch has no pools of volumes in half precision
    shape = (draw.choice((1, 2, 3, 4, 6)), *(draw.choice((4, 5, 6, 7, 9)) for _ in range(rank)))
    classes, of_model = draw.choice((2, 3, 5)), draw.getrandbits(32)
    loss = loss_from(draw, classes)
    options = {
        **loss.options,
        "reduction": base.loss.options.get("reduction", "mean"),
    }  # its lr is small for a sum
    options = {} if loss.kind == "products" else options
    loss = replace(base.loss, kind=loss.kind, options=options)
    count, sizes = draw.choice((2, 2, 3, 5)), [parts[0]["x"].shape[0] for parts in base.steps]

    def batch(size: int) -> Batch:
        n = count if size == sizes[0] else count + 1
        x = (
            inputs_of(draw, (n, *shape), generator).nan_to_num(0.0, 1.0, -1.0).to(base.dtype)
        )  # 0 * NaN is torch's choice
        if loss.kind == "cross_entropy":
            return {"x": x, "t": torch.randint(0, classes, (n,), generator=generator)}
        return {"x": x, "t": torch.randn((n, classes), generator=generator).to(base.dtype)}

    steps = [[batch(size) for _ in parts] for size, parts in zip(sizes, base.steps, strict=True)]
    return replace(
        base,
        make_model=lambda: network(of_model, shape, classes).to(base.dtype),
        loss=loss,
        steps=steps,
    )
