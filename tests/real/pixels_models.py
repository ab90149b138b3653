"""kornia: losses of images, filters, colors and warps through which a gradient flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kornia.color as colors
import kornia.enhance as enhance
import kornia.filters as filters
import kornia.geometry as geometry
import kornia.losses as losses
import kornia.morphology as morphology
import torch
import torch.nn.functional as F
from torch import nn

from tests.real.case import Batch, Make, trained

Tensor = torch.Tensor
SIDE = 16


def net(channels: int = 3) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, channels, 1)
    )


def pair() -> Batch:
    return {"x": torch.rand(2, 3, SIDE, SIDE), "t": torch.rand(2, 3, SIDE, SIDE)}


def classes() -> Batch:
    return {"x": torch.rand(2, 3, SIDE, SIDE), "t": torch.randint(4, (2, SIDE, SIDE))}


def compared(loss: Callable[[Tensor, Tensor], Tensor]) -> Make:
    """The output, in [0, 1], with another image."""
    return lambda: trained(net(), pair, lambda m, b: loss(m(b["x"]).sigmoid(), b["t"]))


def segmented(loss: Callable[[Tensor, Tensor], Tensor]) -> Make:
    return lambda: trained(net(4), classes, lambda m, b: loss(m(b["x"]), b["t"]))


def through(function: Callable[[Tensor], Any]) -> Make:
    return compared(lambda made, wanted: F.mse_loss(function(made), function(wanted)))


CASES: dict[str, Make] = {
    "SSIM": compared(lambda a, b: losses.ssim_loss(a, b, 5)),
    "PSNR": compared(lambda a, b: losses.psnr_loss(a, b, 1.0)),
    "Charbonnier": compared(lambda a, b: losses.charbonnier_loss(a, b, reduction="mean")),
    "Welsch": compared(lambda a, b: losses.welsch_loss(a, b, reduction="mean")),
    "smooth depth": compared(lambda a, b: losses.inverse_depth_smoothness_loss(a[:, :1], b)),
    "Dice": segmented(losses.dice_loss),
    "focal": segmented(lambda a, b: losses.focal_loss(a, b, 0.25, 2.0, "mean")),
    "Tversky": segmented(lambda a, b: losses.tversky_loss(a, b, 0.5, 0.5)),
    "Lovász softmax": segmented(losses.lovasz_softmax_loss),
    "Sobel": through(filters.sobel),
    "Laplace": through(lambda a: filters.laplacian(a, 3)),
    "Gauss": through(lambda a: filters.gaussian_blur2d(a, (5, 5), (1.0, 1.0))),
    "median": through(lambda a: filters.median_blur(a, (3, 3))),
    "bilateral": through(lambda a: filters.bilateral_blur(a, (3, 3), 0.1, (1.0, 1.0))),
    "Lab": through(colors.rgb_to_lab),
    "HSV": through(colors.rgb_to_hsv),
    "Luv": through(colors.rgb_to_luv),
    "gamma": through(lambda a: enhance.adjust_gamma(a, 2.0)),
    "histogram": through(
        lambda a: enhance.histogram(a[:, 0].flatten(1), torch.linspace(0, 1, 8), torch.tensor(0.1))
    ),
    "rotated": through(lambda a: geometry.rotate(a, torch.tensor([30.0, 45.0]))),
    "perspective": through(
        lambda a: geometry.warp_perspective(a, torch.eye(3)[None].repeat(2, 1, 1) + 0.01, (SIDE, SIDE))
    ),
    "resized without aliases": through(lambda a: geometry.resize(a, (9, 11), antialias=True)),
    "spatial softmax": through(geometry.spatial_soft_argmax2d),
    "dilated": through(lambda a: morphology.dilation(a, torch.ones(3, 3))),
}
