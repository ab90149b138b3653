"""Train a ResNet-9 on small colour images, shaped as CIFAR's, with augmentation inside of the compiled step.

The images are scikit-learn's handwritten digits, scaled up and put in two random colours, so nothing is downloaded. They
are bytes until they are in the step. It makes floats of them, then turns, moves and scales each image and covers a
part of it, by random numbers of its own. `--plot FILE` draws the losses as an SVG.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

from aicf_mlir import CompiledTrainStep, compile_train_step, default_device, progress

SIDE = 16
BATCH = 64
WIDTH = 12
RATE, MOMENTUM, DECAY = 0.05, 0.9, 5e-4
SMOOTHING = 0.1
TURN, ZOOM, MOVE = 0.25, 0.15, 0.2
"""The most that an image is turned, in radians, scaled and moved, relative to its size."""
HOLE = 4
"""The side of the square that is covered."""
HELD_OUT = 360

Batch = dict[str, torch.Tensor]


def layer(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    """A convolution, a norm, a rectifier and perhaps a pool."""
    parts = [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*parts, *([nn.MaxPool2d(2)] if pool else []))


class Residual(nn.Module):
    """Two layers beside the way straight through."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(layer(width, width), layer(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


class ResNet9(nn.Module):
    """The logits of bytes [batch, 3, SIDE, SIDE]; in training of changed images."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.5, 0.5, 0.5]).view(3, 1, 1) * 255)
        self.layers = nn.Sequential(
            layer(3, width),
            layer(width, 2 * width, pool=True),
            Residual(2 * width),
            layer(2 * width, 4 * width, pool=True),
            layer(4 * width, 4 * width),
            Residual(4 * width),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = (image.float() - self.mean) / 64
        return self.head(self.layers(changed(x) if self.training else x))


def changed(x: torch.Tensor) -> torch.Tensor:
    """Each image turned, scaled, moved and covered by chance."""
    count = len(x)
    angle, zoom, right, down = (torch.rand(4, count, device=x.device) * 2 - 1).unbind()
    scale = 1 + ZOOM * zoom
    cos, sin = torch.cos(TURN * angle) * scale, torch.sin(TURN * angle) * scale
    theta = torch.stack([cos, -sin, MOVE * right, sin, cos, MOVE * down], 1).view(count, 2, 3)
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    first = torch.randint(SIDE - HOLE + 1, (2, count, 1), device=x.device)
    places = torch.arange(SIDE, device=x.device)
    covered = (places >= first) & (places < first + HOLE)
    return x.masked_fill((covered[0][:, :, None] & covered[1][:, None, :])[:, None], 0.0)


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy with smoothed labels."""
    return F.cross_entropy(model(batch["image"]), batch["label"], label_smoothing=SMOOTHING)


def load(device: torch.device) -> tuple[Batch, Batch]:
    """Images to train on, and held out: bytes [n, 3, SIDE, SIDE] and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(0)
    small = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    ink = F.interpolate(small, size=(SIDE, SIDE), mode="bicubic").clamp(0, 1)
    light, dark = torch.rand(2, len(ink), 3, 1, 1, generator=generator)
    light, dark = 0.5 + 0.5 * light, 0.5 * dark
    noise = 0.05 * torch.randn(len(ink), 3, SIDE, SIDE, generator=generator)
    images = ((ink * light + (1 - ink) * dark + noise).clamp(0, 1) * 255).to(torch.uint8)
    order = torch.randperm(len(images), generator=generator)
    data = {"image": images[order].to(device), "label": torch.tensor(labels)[order].to(device)}
    return (
        {name: value[HELD_OUT:] for name, value in data.items()},
        {name: value[:HELD_OUT] for name, value in data.items()},
    )


def batches(data: Batch, epochs: int) -> Iterator[Batch]:
    """Whole batches of each epoch in a new order."""
    generator = torch.Generator().manual_seed(1)
    count = len(data["label"])
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).to(data["label"].device)
        for index in order[: count - count % BATCH].split(BATCH):
            yield {name: value[index] for name, value in data.items()}


@torch.no_grad()
def accuracy(model: nn.Module, data: Batch) -> float:
    """The share of right answers; the model is an ordinary torch module and sees every update."""
    model.eval()
    right = (model(data["image"]).argmax(1) == data["label"]).float().mean().item()
    model.train()
    return right


def train(
    model: nn.Module, data: Batch, held_out: Batch, epochs: int
) -> tuple[CompiledTrainStep, list[float]]:
    """Train and show how it goes; return the step and its losses."""
    optimizer = torch.optim.SGD(
        model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True
    )
    each = len(data["label"]) // BATCH
    scheduler = OneCycleLR(optimizer, RATE, total_steps=each * epochs, cycle_momentum=False)
    first, started = next(batches(data, 1)), time.perf_counter()
    step = compile_train_step(
        model.train(),
        optimizer,
        loss_fn=loss_of,
        example=first,
        device=data["image"].device,
        name="cifar",
        seed=0,
    )
    print(f"compiled in {time.perf_counter() - started:.1f} s, {len(step.planned_kernels())} launches a step")
    step.warmup(first)
    step.capture(first)
    losses: list[torch.Tensor] = []
    shown = progress(batches(data, epochs), total=each * epochs, name="train", show=True)
    for number, batch in enumerate(shown, 1):
        losses.append(step.replay(inputs=batch).clone())
        scheduler.step()
        shown.set_postfix(loss=losses[-1], lr=optimizer.param_groups[0]["lr"])
        if number % each == 0:
            mean = torch.stack(losses[-each:]).mean().item()
            right = accuracy(model, held_out)
            print(f"epoch {number // each:3d}  loss {mean:.4f}  held-out accuracy {right:6.1%}", flush=True)
    return step, torch.stack(losses).tolist()


def picture(losses: Sequence[float], width: int = 640, height: int = 320, edge: int = 40) -> str:
    """The losses as an SVG: steps to the right, losses upwards from 0."""
    most, last = max(losses), max(1, len(losses) - 1)
    points = " ".join(
        f"{edge + (width - 2 * edge) * step / last:.1f},{height - edge - (height - 2 * edge) * loss / most:.1f}"
        for step, loss in enumerate(losses)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<path d="M{edge} {edge}V{height - edge}H{width - edge}" fill="none" stroke="#888"/>'
        f'<polyline points="{points}" fill="none" stroke="#27c" stroke-width="1.5"/>'
        f'<text x="4" y="{edge}">{most:.2f}</text><text x="4" y="{height - edge}">0</text>'
        f'<text x="{edge}" y="{height - 12}">loss by step, to step {len(losses)}</text></svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the losses as an SVG")
    options = parser.parse_args()

    torch.manual_seed(0)
    data, held_out = load(torch.device(options.device))
    model = ResNet9().to(options.device)
    weights = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{weights:,} weights, {len(data['label']):,} images to train on, {len(held_out['label']):,} held out"
    )
    _, losses = train(model, data, held_out, options.epochs)
    if options.plot is not None:
        options.plot.write_text(picture(losses))
        print(f"wrote {options.plot}")
    print(f"\nheld-out accuracy {accuracy(model, held_out):.2%}")


if __name__ == "__main__":
    main()
