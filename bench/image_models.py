"""Convolutional nets of `models_gpu.py` and `train_step.py`, of images [N, C, H, W]: as in their papers, with random weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Act = type[nn.Module] | None


def conv(
    before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, act: Act = nn.ReLU
) -> nn.Sequential:
    """A convolution without a bias, batch norm, activation."""
    layer = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), *([act()] if act else []))


def lenet() -> nn.Sequential:
    """LeNet-5 for images of 1 x 28 x 28, with ReLU and largest elements."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


class Residual(nn.Module):
    """Layers beside the way straight through."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def resnet9(width: int = 64) -> nn.Sequential:
    """ResNet-9 for images of 3 x 32 x 32: a net of DAWNBench."""

    def pooled(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(conv(before, after, 3), nn.MaxPool2d(2))

    def residual(width: int) -> Residual:
        return Residual(conv(width, width, 3), conv(width, width, 3))

    return nn.Sequential(
        *(conv(3, width, 3), pooled(width, 2 * width), residual(2 * width)),
        *(pooled(2 * width, 4 * width), pooled(4 * width, 8 * width), residual(8 * width)),
        *(nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10)),
    )


def airbench(classes: int, width: int = 64) -> nn.Sequential:
    """The net of airbench94 (Keller Jordan) for images of 3 x 32 x 32: its first weights stay, pools stand before norms."""

    def group(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(
            *(
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.MaxPool2d(2),
                nn.BatchNorm2d(after),
                nn.GELU(),
            ),
            conv(after, after, 3, act=nn.GELU),
        )

    first = nn.Conv2d(3, 24, 2)
    first.weight.requires_grad_(False)
    return nn.Sequential(
        *(first, nn.GELU(), group(24, width), group(width, 4 * width), group(4 * width, 4 * width)),
        *(nn.MaxPool2d(3), nn.Flatten(), nn.Linear(4 * width, classes, bias=False)),
    )


def separable(width: int, blocks: int = 2) -> nn.Sequential:
    """Blocks of MobileNet of one width, depthwise and pointwise, and a head."""
    layers = [(conv(width, width, 3, groups=width), conv(width, width, 1)) for _ in range(blocks)]
    return nn.Sequential(
        *(each for pair in layers for each in pair),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)),
    )


class Nature(nn.Sequential):
    """The net of the Atari DQN: images of 4 x 84 x 84."""

    def __init__(self, actions: int):
        super().__init__(
            *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3)),
            *(nn.ReLU(), nn.Flatten(), nn.LazyLinear(512), nn.ReLU(), nn.Linear(512, actions)),
        )
        self(torch.zeros(1, 4, 84, 84))


class Basic(nn.Module):
    """The block of ResNet-18."""

    grows = 1

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(conv(before, width, 3, stride), conv(width, width, 3, act=None))
        self.past = (
            conv(before, width, 1, stride, act=None) if stride > 1 or before != width else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.past(x))


class Bottleneck(Basic):
    """The block of ResNet-50."""

    grows = 4

    def __init__(self, before: int, width: int, stride: int):
        nn.Module.__init__(self)
        after = 4 * width
        self.body = nn.Sequential(
            conv(before, width, 1), conv(width, width, 3, stride), conv(width, after, 1, act=None)
        )
        self.past = (
            conv(before, after, 1, stride, act=None) if stride > 1 or before != after else nn.Identity()
        )


def resnet(
    block: type[Basic], depths: tuple[int, ...], classes: int, small: bool, width: int = 64
) -> nn.Sequential:
    """A residual net; `small` images begin without a stride and a pool."""
    first = [conv(3, width, 3)] if small else [conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    layers, before = list[nn.Module](first), width
    for level, depth in enumerate(depths):
        for number in range(depth):
            layers.append(block(before, width << level, 2 if level and not number else 1))
            before = block.grows * (width << level)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class Inverted(nn.Module):
    """The block of MobileNetV2."""

    def __init__(self, before: int, after: int, stride: int, grows: int):
        super().__init__()
        wide = before * grows
        first = [conv(before, wide, 1, act=nn.ReLU6)] if grows > 1 else []
        self.body = nn.Sequential(
            *first, conv(wide, wide, 3, stride, wide, nn.ReLU6), conv(wide, after, 1, act=None)
        )
        self.adds = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.adds else self.body(x)


MOBILE = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobile(classes: int, rows: int = 7) -> nn.Sequential:
    """MobileNetV2, or its first rows of blocks."""
    layers, before = [conv(3, 32, 3, 2, act=nn.ReLU6)], 32
    for grows, after, count, stride in MOBILE[:rows]:
        for number in range(count):
            layers.append(Inverted(before, after, 1 if number else stride, grows))  # pyright: ignore
            before = after
    last = conv(before, 1280, 1, act=nn.ReLU6)
    return nn.Sequential(*layers, last, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes))


class Next(nn.Module):
    """The block of ConvNeXt; its norm and products have the channels last."""

    def __init__(self, width: int):
        super().__init__()
        self.deep = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.back(functional.gelu(self.wide(y)))).permute(0, 3, 1, 2)


class ImageNorm(nn.LayerNorm):
    """Over the channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(classes: int, depths: tuple[int, ...] = (3, 3, 9, 3), width: int = 96) -> nn.Sequential:
    """ConvNeXt-T without stochastic depth."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ImageNorm(width)]
    for level, depth in enumerate(depths):
        if level:
            layers += [ImageNorm(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [Next(width) for _ in range(depth)]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, classes)
    )


class Unet(nn.Module):
    """A U-Net of double convolutions with batch norm, a result for each pixel."""

    def __init__(self, width: int, levels: int):
        super().__init__()
        sizes = [width << level for level in range(levels)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(before, after, 3), conv(after, after, 3))
            for before, after in zip([3, *sizes], sizes, strict=False)
        )
        pairs = list(zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, 2) for before, after in pairs)
        self.up = nn.ModuleList(
            nn.Sequential(conv(2 * after, after, 3), conv(after, after, 3)) for _, after in pairs
        )
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for number, layer in enumerate(self.down):
            x = layer(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for past, wider, layer in zip(kept[-2::-1], self.wider, self.up, strict=True):
            x = layer(torch.cat([wider(x), past], 1))
        return self.last(x)


def pixel_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Whether each pixel belongs to an object."""
    return functional.binary_cross_entropy_with_logits(model(batch["x"]).squeeze(1).float(), batch["t"])


def images(batch: int, channels: int, size: int, classes: int) -> dict[str, Tensor]:
    """Images, and a class for each; with one class a mask of pixels."""
    t = torch.rand(batch, size, size).round() if classes == 1 else torch.randint(classes, (batch,))
    return {"x": torch.randn(batch, channels, size, size), "t": t}
