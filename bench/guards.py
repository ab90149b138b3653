"""What the guards of a step cost: `replay()` with them and without, in turn, in one run.

    python bench/guards.py [--device cpu|cuda]

Prints medians in microseconds for 64 x 8 x 2 under Adam, and for models of 200 layers. "Without" leaves out every comparison of
the model, the optimizer and its state with what was compiled; the step itself is the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from aicf_mlir import compile_train_step

WINDOWS, SECONDS = 15, 0.1


def build(batch: int, width: int, layers: int, device: str) -> Any:
    """A captured step of `layers` square layers with ReLU between."""
    torch.manual_seed(0)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*parts[:-1]).to(device)
    step = compile_train_step(model, torch.optim.Adam(model.parameters()), B=batch, D=width, device=device)
    data = {name: torch.randn(batch, width, device=device) for name in ("x", "t")}
    step.train_step(data)
    step.capture(data)
    return step


def window(call: Callable[[], object], device: str) -> float:
    """Seconds a call, over a window of at least SECONDS."""
    count, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < SECONDS:
        for _ in range(10):
            call()
        count += 10
    if device == "cuda":
        torch.cuda.synchronize()
        now = time.perf_counter()
    return (now - start) / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    print(f"{'B x D x L':16}  {'guarded':>9}  {'without':>9}  {'cost':>8}  {'check':>8}")
    for batch, width, layers in ((64, 8, 2), (64, 64, 200), (64, 256, 200)):
        step = build(batch, width, layers, device)
        check = step._changed
        variants = {"guarded": check, "without": lambda: -1}
        times: dict[str, list[float]] = {name: [] for name in variants}
        for i in range(WINDOWS):
            for name in variants if i % 2 else reversed(variants):
                step._changed = variants[name]
                times[name].append(window(step.replay, device))
        medians = {name: statistics.median(found) * 1e6 for name, found in times.items()}
        cost = statistics.median(a - b for a, b in zip(*times.values(), strict=True)) * 1e6
        alone = statistics.median(window(check, device) for _ in range(5)) * 1e6
        print(
            f"{f'{batch} x {width} x {layers}':16}  {medians['guarded']:9.2f}  {medians['without']:9.2f}"
            f"  {cost:8.2f}  {alone:8.2f}"
        )


if __name__ == "__main__":
    main()
