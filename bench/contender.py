"""One way of running a train step again and again, how long its steps take, and on what machine."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Contender:
    """`run(n)` runs n steps, waits for them and gives the loss of the last one."""

    name: str
    run: Callable[[int], float]
    ours: bool = False
    stride: int = 1
    """Steps that run at once: n is a multiple of it."""


def repeat(step: Callable[[], torch.Tensor], n: int) -> float:
    """The loss after n calls of `step`, which returns it."""
    for _ in range(n - 1):
        step()
    return float(step())


def timed(contender: Contender, n: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Microseconds a step of n steps."""
    started = clock()
    contender.run(n)
    return (clock() - started) / n * 1e6


def describe_machine(device: str) -> str:
    """The device, and the versions of Python and torch."""
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {versions}"
    return f"CPU, {torch.get_num_threads()} threads, {versions}"
