"""A step of Burgers' equation by a physics-informed network under Adam: AICF's replay, and eager torch.

`python bench/pinn.py [--device cuda]` prints microseconds a step, best of several runs in turn, and the launches of a step.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from aicf_mlir import compile_train_step, default_device

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from pinn_burgers import Batch, loss_of

SIZES = ((1024, 32, 4), (8192, 64, 5))
"""Points, width, layers."""


def network(width: int, layers: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
    for _ in range(layers - 2):
        parts += [nn.Linear(width, width), nn.Tanh()]
    return nn.Sequential(*parts, nn.Linear(width, 1))


def best(runs: Sequence[Callable[[int], object]], seconds: float, device: str) -> list[float]:
    """The least seconds of a step of each, in turn."""
    least = [float("inf")] * len(runs)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for number, run in enumerate(runs):
            began = time.perf_counter()
            run(10)
            if device == "cuda":
                torch.cuda.synchronize()
            least[number] = min(least[number], (time.perf_counter() - began) / 10)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--seconds", type=float, default=10.0, help="for each size")
    options = parser.parse_args()
    for points, width, layers in SIZES:
        torch.manual_seed(0)
        ours = network(width, layers).to(options.device)
        theirs = copy.deepcopy(ours)
        x, t = torch.rand(2, points, 1, device=options.device)
        batch: Batch = {"x": 2 * x - 1, "t": t}
        step = compile_train_step(
            ours, torch.optim.Adam(ours.parameters()), loss_fn=loss_of, example=batch, device=options.device
        )
        step.warmup(batch)
        step.capture(batch)
        adam = torch.optim.Adam(theirs.parameters())

        def eager(n: int, model: nn.Module = theirs, adam: torch.optim.Adam = adam, b: Batch = batch) -> None:
            for _ in range(n):
                adam.zero_grad()
                loss_of(model, {name: tensor.detach() for name, tensor in b.items()}).backward()
                adam.step()

        found = best([step.replay, eager], options.seconds, options.device)
        print(
            f"{points:5} points, {layers} layers of {width}: {len(step.planned_kernels())} launches,"
            f" AICF {found[0] * 1e6:.0f}, torch {found[1] * 1e6:.0f} us"
        )


if __name__ == "__main__":
    main()
