"""Networks and losses of images as they are written: kernels made of the batch, places sampled, boxes, flows, sounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from user_models.case import Batch, Case
from user_models.networks import Forward, case, rows

COUNT, CHANNELS, SIDE = 2, 4, 8


def pictures() -> Batch:
    return {"x": torch.randn(COUNT, 3, SIDE, SIDE)}


def conv(inputs: int, outputs: int, size: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, padding=size // 2, **options)


def pixels(x: torch.Tensor) -> torch.Tensor:
    """The row and the column of each pixel, from -1 to 1: [H, W, 2], the column first."""
    ys, xs = (torch.linspace(-1, 1, size, dtype=x.dtype, device=x.device) for size in x.shape[-2:])
    return torch.stack(torch.meshgrid(ys, xs, indexing="ij")[::-1], -1)


def each_own(x: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """Convolve each image with kernels of its own [N, O, C, k, k]."""
    n, outputs, _, size, _ = kernels.shape
    y = F.conv2d(x.flatten(0, 1)[None], kernels.flatten(0, 1), padding=size // 2, groups=n)
    return y.view(n, outputs, *x.shape[2:])


def modulated(m: Any, x: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
    """StyleGAN2: a style scales the kernel, whose outputs are then scaled back."""
    kernels = m.kernel * m.style(style)[:, None, :, None, None]
    kernels = kernels * torch.rsqrt(kernels.square().sum((2, 3, 4), keepdim=True) + 1e-8)
    return m.colours(F.leaky_relu(each_own(x, kernels), 0.2))


def mixed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """CondConv: the kernel of an image is a mixture."""
    shares = torch.sigmoid(m.router(x.mean((2, 3))))
    return each_own(x, torch.einsum("ne,eocij->nocij", shares, m.kernels))


def deformed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A deformable convolution: each tap is sampled where the network says, and weighed."""
    n, _, h, w = x.shape
    moved = m.offsets(x).view(n, 9, 2, h, w).permute(0, 1, 3, 4, 2) * 0.3
    weight = torch.sigmoid(m.weights(x))
    taps = [
        F.grid_sample(x, pixels(x) + moved[:, tap], align_corners=True) * weight[:, tap : tap + 1]
        for tap in range(9)
    ]
    return torch.einsum("tnchw,oct->nohw", torch.stack(taps), m.kernel)


def involution(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The kernel of a pixel is made of it, and shared by a group of channels."""
    y = m.first(x)
    n, c, h, w = y.shape
    kernels = m.second(F.relu(m.reduced(y))).view(n, 2, 1, 9, h, w)
    return (kernels * F.unfold(y, 3, padding=1).view(n, 2, c // 2, 9, h, w)).sum(3).view(n, c, h, w)


def filtered(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A filter of its own for each pixel, over its neighbours."""
    windows = F.pad(x, (2, 2, 2, 2), mode="replicate").unfold(2, 5, 1).unfold(3, 5, 1).flatten(4)
    return torch.einsum("nchwk,nkhw->nchw", windows, m.filters(x).softmax(1))


def octave(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Two sizes, each with a part from the other one."""
    high, low = m.high(x), m.low(F.avg_pool2d(x, 2))
    up = F.interpolate(m.up(low), scale_factor=2, mode="nearest")
    return F.relu(m.across(high) + up).mean((2, 3)) + m.down(F.avg_pool2d(high, 2)).mean((2, 3))


def with_places(m: Any, x: torch.Tensor) -> torch.Tensor:
    """CoordConv."""
    places = pixels(x).permute(2, 0, 1).expand(len(x), -1, -1, -1)
    return m.net(torch.cat([x, places, places.square().sum(1, keepdim=True).sqrt()], 1))


def transformed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A spatial transformer."""
    theta = torch.eye(2, 3, device=x.device) + 0.1 * m.theta(x.flatten(1)).view(-1, 2, 3)
    return m.net(
        F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)
    )


def warped(m: Any, batch: Batch) -> torch.Tensor:
    """The next image, moved by a flow, is this one, and the flow is smooth."""
    flow = m.net(batch["x"]).permute(0, 2, 3, 1)
    moved = F.grid_sample(
        batch["next"], pixels(batch["x"]) + 0.3 * flow, padding_mode="border", align_corners=True
    )
    return ((moved - batch["x"]).square() + 1e-6).sqrt().mean() + flow.diff(dim=1).abs().mean()


def glow(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A step of a flow on pixels that are squeezed into channels."""
    y = F.conv2d(F.pixel_unshuffle(x, 2), m.rotation[..., None, None])
    kept, moved = y.chunk(2, 1)
    shift, scale = m.net(kept).chunk(2, 1)
    scale = torch.sigmoid(scale + 2)
    logdet = torch.linalg.slogdet(m.rotation)[1] * y[0, 0].numel() + scale.log().flatten(1).sum(1)
    return (0.5 * torch.cat([kept, (moved + shift) * scale], 1).square().flatten(1).sum(1) - logdet) / 100


def masked(m: Any, x: torch.Tensor) -> torch.Tensor:
    """PixelCNN: a convolution that sees what is above and to the left."""
    mask = torch.ones(5, 5, device=x.device)
    mask[2, 2:] = 0
    mask[3:] = 0
    return m.last(F.relu(F.conv2d(x, m.kernel * mask, padding=2)))


def remembered(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A convolutional LSTM over [N, time, C, H, W]."""
    h = c = x.new_zeros(len(x), CHANNELS, *x.shape[3:])
    for each in x.unbind(1):
        i, f, o, g = m.gates(torch.cat([each, h], 1)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
    return h


def wavenet(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Gated convolutions that look back further layer by layer."""
    y, out = m.first(x), 0
    for number, (gated, back) in enumerate(zip(m.gated, m.back, strict=True)):
        value, gate = gated(F.pad(y, (2**number, 0))).chunk(2, 1)
        inner = torch.tanh(value) * torch.sigmoid(gate)
        y, out = y + back(inner), out + inner
    return m.last(F.relu(out))


def spectrum(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Features of a sound: logarithms of sums over its spectrogram."""
    power = (
        torch.stft(x, 16, 4, window=torch.hann_window(16, device=x.device), return_complex=True)
        .abs()
        .square()
    )
    return m.net((m.bank.abs() @ power + 1e-3).log())


def non_local(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Each pixel attends to a smaller image."""
    y = m.first(x)
    query, key, value = (
        m.query(y).flatten(2),
        F.max_pool2d(m.key(y), 2).flatten(2),
        F.max_pool2d(y, 2).flatten(2),
    )
    return y + m.last((value @ (query.transpose(1, 2) @ key).softmax(-1).transpose(1, 2)).view_as(y))


def unpooled(m: Any, x: torch.Tensor) -> torch.Tensor:
    """SegNet: maxima return to where they were."""
    y = m.first(x)
    small, places = F.max_pool2d(y, 2, return_indices=True)
    return m.last(F.max_unpool2d(small.tanh(), places, 2, output_size=y.shape[2:]))


def keypoints(m: Any, batch: Batch) -> torch.Tensor:
    """Heatmaps against bumps, and their mean places; some points are not seen."""
    maps = m.net(batch["x"])
    apart = (pixels(maps) - batch["at"][:, :, None, None]).square().sum(-1)
    seen = batch["seen"][..., None, None]
    found = torch.einsum("nkhw,hwd->nkd", maps.flatten(2).softmax(-1).view_as(maps), pixels(maps))
    return ((maps - torch.exp(-4 * apart)).square() * seen).mean() + (
        (found - batch["at"]).abs() * seen[..., 0]
    ).mean()


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The generalized intersection over union of boxes (centre, size)."""
    (low, high), (other_low, other_high) = (
        (box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2) for box in (a, b)
    )
    both = (torch.min(high, other_high) - torch.max(low, other_low)).clamp(min=0).prod(1)
    whole = (torch.max(high, other_high) - torch.min(low, other_low)).prod(1)
    union = a[:, 2:].prod(1) + b[:, 2:].prod(1) - both
    return both / union - (whole - union) / whole


def boxes(m: Any, batch: Batch) -> torch.Tensor:
    """YOLO: boxes and classes at the cells of the targets; how sure a cell is, is how well its box fits."""
    made = m.net(batch["x"]).permute(0, 2, 3, 1)
    at = (batch["image"], batch["row"], batch["column"])
    there = made[at]
    fit = overlap(torch.cat([there[:, :2].sigmoid(), there[:, 2:4].sigmoid() * 2], 1), batch["box"])
    sure = torch.zeros_like(made[..., 4])
    sure[at] = fit.detach().clamp(min=0)
    classes = F.one_hot(batch["class"], 3).to(made.dtype)
    return (
        (1 - fit).mean()
        + F.binary_cross_entropy_with_logits(there[:, 5:], classes)
        + F.binary_cross_entropy_with_logits(made[..., 4], sure)
    )


def targets() -> Batch:
    """Boxes in cells that differ: an order of no two equal writes is not defined."""
    image, cell = torch.tensor([0, 0, 1, 1]), torch.randperm(16)[:4]
    return {
        "x": torch.randn(COUNT, 3, SIDE, SIDE),
        "image": image,
        "row": cell // 4,
        "column": cell % 4,
        "class": torch.randint(3, (4,)),
        "box": torch.rand(4, 4) + 0.2,
    }


def similar(m: Any, batch: Batch) -> torch.Tensor:
    """The structural similarity, and the distance of the spectra."""
    x, t = torch.sigmoid(m.net(batch["x"])), batch["t"]
    bump = torch.exp(-torch.linspace(-2, 2, 5, device=x.device).square() / 2)
    window = (bump[:, None] * bump / bump.sum() ** 2).expand(3, 1, 5, 5)

    def mean(y: torch.Tensor) -> torch.Tensor:
        return F.conv2d(y, window, groups=3)

    a, b = mean(x), mean(t)
    top = (2 * a * b + 1e-4) * (2 * (mean(x * t) - a * b) + 9e-4)
    low = (a * a + b * b + 1e-4) * (mean(x * x) - a * a + mean(t * t) - b * b + 9e-4)
    return 1 - (top / low).mean() + 0.1 * (torch.fft.rfft2(x) - torch.fft.rfft2(t)).abs().mean()


def styled(m: Any, batch: Batch) -> torch.Tensor:
    """Features of a frozen network, and products of their channels."""
    x, t = m.net(batch["x"]), batch["t"]
    total: Any = 0.0
    for layer in m.features:
        x, t = layer(x), layer(t)
        grams = [y.flatten(2) @ y.flatten(2).transpose(1, 2) / y[0].numel() for y in (x, t)]
        total = total + F.l1_loss(x, t.detach()) + F.mse_loss(*grams)
    return total


def hardest(m: Any, batch: Batch) -> torch.Tensor:
    """The cross entropy of the hardest half of the pixels."""
    losses = F.cross_entropy(m.net(batch["x"]), batch["t"], reduction="none").flatten()
    return losses.topk(losses.numel() // 2).values.mean()


def net(outputs: int, inputs: int = 3) -> nn.Sequential:
    return nn.Sequential(conv(inputs, CHANNELS), nn.SiLU(), conv(CHANNELS, outputs))


def with_(**more: Callable[[], torch.Tensor]) -> Callable[[], Batch]:
    return lambda: {**pictures(), **{name: make() for name, make in more.items()}}


def like_x() -> torch.Tensor:
    return torch.rand(COUNT, 3, SIDE, SIDE)


def simple(forward: Forward, batch: Callable[[], Batch] = pictures, **parts: Callable[[], Any]) -> Case:
    """Of a forward whose outputs are all weighed."""
    return case(forward, lambda: {name: make() for name, make in parts.items()}, batch)


def of_loss(
    loss: Callable[[Any, Batch], torch.Tensor], batch: Callable[[], Batch], **parts: Callable[[], Any]
) -> Case:
    """Of a loss of model and batch."""
    return case(lambda m: m, lambda: {name: make() for name, make in parts.items()}, batch, loss)


CASES: dict[str, Case] = {
    "modulated kernels": simple(
        modulated,
        with_(style=lambda: torch.randn(COUNT, 5)),
        kernel=lambda: torch.randn(CHANNELS, 3, 3, 3),
        style=lambda: nn.Linear(5, 3),
        colours=lambda: nn.Conv2d(CHANNELS, 3, 1),
    ),
    "mixed kernels": simple(
        mixed, kernels=lambda: torch.randn(3, CHANNELS, 3, 3, 3) / 5, router=lambda: nn.Linear(3, 3)
    ),
    "deformable": simple(
        deformed,
        offsets=lambda: conv(3, 18),
        weights=lambda: conv(3, 9),
        kernel=lambda: torch.randn(CHANNELS, 3, 9) / 5,
    ),
    "involution": simple(
        involution,
        first=lambda: conv(3, CHANNELS, 1),
        reduced=lambda: conv(CHANNELS, 3, 1),
        second=lambda: conv(3, 18, 1),
    ),
    "dynamic filters": simple(filtered, filters=lambda: net(25)),
    "octave": simple(
        octave,
        high=lambda: conv(3, CHANNELS),
        low=lambda: conv(3, CHANNELS),
        across=lambda: conv(CHANNELS, 5),
        up=lambda: conv(CHANNELS, 5),
        down=lambda: conv(CHANNELS, 5),
    ),
    "places as channels": simple(with_places, net=lambda: net(3, 6)),
    "spatial transformer": simple(
        transformed, theta=lambda: nn.Linear(3 * SIDE * SIDE, 6), net=lambda: net(3)
    ),
    "warped by a flow": of_loss(warped, with_(next=like_x), net=lambda: net(2)),
    "Glow": simple(glow, rotation=lambda: torch.linalg.qr(torch.randn(12, 12))[0], net=lambda: net(12, 6)),
    "PixelCNN": simple(
        masked, kernel=lambda: torch.randn(CHANNELS, 3, 5, 5) / 5, last=lambda: conv(CHANNELS, 3, 1)
    ),
    "convolutional LSTM": simple(
        remembered, rows(2, 3, 3, 6, 6), gates=lambda: conv(3 + CHANNELS, 4 * CHANNELS)
    ),
    "WaveNet": simple(
        wavenet,
        rows(2, 1, 20),
        first=lambda: nn.Conv1d(1, CHANNELS, 1),
        gated=lambda: nn.ModuleList(nn.Conv1d(CHANNELS, 2 * CHANNELS, 2, dilation=2**i) for i in range(3)),
        back=lambda: nn.ModuleList(nn.Conv1d(CHANNELS, CHANNELS, 1) for _ in range(3)),
        last=lambda: nn.Conv1d(CHANNELS, 6, 1),
    ),
    "spectrogram": simple(
        spectrum, rows(2, 80), bank=lambda: torch.rand(5, 9), net=lambda: nn.Conv1d(5, 3, 3)
    ),
    "non-local": simple(
        non_local,
        first=lambda: conv(3, CHANNELS),
        query=lambda: conv(CHANNELS, 2, 1, bias=False),
        key=lambda: conv(CHANNELS, 2, 1, bias=False),
        last=lambda: conv(CHANNELS, CHANNELS, 1),
    ),
    "SegNet": simple(unpooled, first=lambda: conv(3, CHANNELS), last=lambda: conv(CHANNELS, 3)),
    "keypoints": of_loss(
        keypoints,
        with_(at=lambda: torch.rand(COUNT, 5, 2) * 2 - 1, seen=lambda: torch.randint(2, (COUNT, 5)).float()),
        net=lambda: net(5),
    ),
    "boxes": of_loss(
        boxes, targets, net=lambda: nn.Sequential(conv(3, CHANNELS), nn.SiLU(), nn.Conv2d(CHANNELS, 8, 2, 2))
    ),
    "similarity and spectra": of_loss(similar, with_(t=like_x), net=lambda: net(3)),
    "perceptual": of_loss(
        styled,
        with_(t=like_x),
        net=lambda: net(3),
        features=lambda: nn.Sequential(
            *(nn.Sequential(conv(3, 6), nn.ReLU()), nn.MaxPool2d(2), nn.Sequential(conv(6, 6), nn.ReLU()))
        ).requires_grad_(False),
    ),
    "hardest pixels": of_loss(
        hardest, with_(t=lambda: torch.randint(3, (COUNT, SIDE, SIDE))), net=lambda: net(3)
    ),
}
