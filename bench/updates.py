"""The updates of many parameters: one launch for all with one body, beside a launch for each, in one run.

    python bench/updates.py [--device cuda] [--width 256] [--blocks 37] [--rounds 7] [--clock cpu]

A block is a linear layer and a norm, 4 parameters; the last layer has 2 more, so that 37 blocks have 150. Prints the
launches of a step, microseconds of a replayed step (median of windows, the two in turns), their ratio, and what
compiling took.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "py" / "support"))

from written_optimizers import RIGHT

from aicf_mlir import compile_train_step
from aicf_mlir.passes import fuse

BATCH, WINDOW_S = 32, 0.2
Make = Callable[[Any], torch.optim.Optimizer]

CASES: dict[str, tuple[Make, dict[str, Any]]] = {
    "RMSprop": (lambda parameters: torch.optim.RMSprop(parameters, lr=1e-4), {}),
    "Lion as written": (RIGHT["lion"], {}),
    "AdamW, clip_grad_norm": (
        lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
        {"clip_grad_norm": 1.0},
    ),
}


def model(width: int, blocks: int) -> nn.Module:
    """Weights, biases and norms."""
    torch.manual_seed(0)
    layers = [layer for _ in range(blocks) for layer in (nn.Linear(width, width), nn.LayerNorm(width))]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def loss(net: Any, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(net(batch["x"]), batch["t"])


def compiled(
    make: Make, options: dict[str, Any], args: argparse.Namespace, together: bool
) -> tuple[Any, float]:
    """A captured step, and the seconds that it took."""
    net = model(args.width, args.blocks).to(args.device)
    batch = {
        "x": torch.randn(BATCH, args.width, device=args.device),
        "t": torch.randint(10, (BATCH,), device=args.device),
    }
    started = time.perf_counter()
    rules = [rule for rule in fuse.RULES if together or rule.name != "fuse-segments"]
    with mock.patch.object(fuse, "RULES", rules):
        step = compile_train_step(
            net, make(list(net.parameters())), device=args.device, example=batch, loss_fn=loss, **options
        )
    step.warmup(batch)
    step.capture(batch)
    return step, time.perf_counter() - started


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""Seconds; `cpu` is for a machine that others use, with AICF_NUM_THREADS=1."""


def window(step: Any, count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Microseconds of a step."""
    started = clock()
    step.replay(count, sync=True)
    return (clock() - started) / count * 1e6


def rows(args: argparse.Namespace) -> Iterator[str]:
    """A line for each case."""
    for name, (make, options) in CASES.items():
        steps = [compiled(make, options, args, together) for together in (False, True)]
        samples: list[list[float]] = [[], []]
        counts = [max(3, int(WINDOW_S * 1e6 / window(step, 3))) for step, _ in steps]
        for _ in range(args.rounds):
            for (step, _), found, count in zip(steps, samples, counts, strict=True):
                found.append(window(step, count, CLOCKS[args.clock]))
        apart, together = map(statistics.median, samples)
        launches = [len(step.planned_kernels()) for step, _ in steps]
        seconds = [f"{spent:.1f}" for _, spent in steps]
        yield (
            f"{name:22} {launches[0]:4} -> {launches[1]:4} launches {apart:9.1f} -> {together:9.1f} µs"
            f" {apart / together:5.2f}x   compiled in {seconds[0]} -> {seconds[1]} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=37)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    args = parser.parse_args()
    print(f"{4 * args.blocks + 2} parameters of width {args.width}, batches of {BATCH}, {args.device}")
    for row in rows(args):
        print(row, flush=True)


if __name__ == "__main__":
    main()
