"""What the guards of a step cost: `replay()` with them and without, in turn, in one run.

    python bench/guards.py [--device cpu|cuda]

Prints medians in microseconds for 64 x 8 x 2 under Adam, and for a model of 200 layers. "Without" leaves out every comparison of
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
    for batch, width, layers in ((64, 8, 2), (64, 64, 200)):
        step = build(batch, width, layers, device)
        guarded, without, check = list[float](), list[float](), list[float]()
        for _ in range(WINDOWS):
            guarded.append(window(step.replay, device))
            step._prepare = lambda: None
            without.append(window(step.replay, device))
            del step._prepare
            check.append(window(step._prepare, device))
        a, b, c = (statistics.median(times) * 1e6 for times in (guarded, without, check))
        print(f"{f'{batch} x {width} x {layers}':16}  {a:9.2f}  {b:9.2f}  {a - b:8.2f}  {c:8.2f}")


if __name__ == "__main__":
    main()
