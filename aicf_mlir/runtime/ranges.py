"""What a step does, by name, on the time line of whoever records one: torch's profiler, and for a step on CUDA NVTX."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_nvtx: Any = torch.cuda.nvtx

RECORDER: Any = torch.autograd.profiler
"""Torch's profiler; `_is_profiler_enabled` is what a step costs while nobody records: 20 ns."""


@contextmanager
def named_range(name: str, on_cuda: bool) -> Generator[None]:
    """Give the block a name on the time lines that are recorded now."""
    if not on_cuda and not RECORDER._is_profiler_enabled:
        yield
        return
    with ExitStack() as stack:
        if RECORDER._is_profiler_enabled:
            stack.enter_context(torch.profiler.record_function(name))
        if on_cuda:
            stack.enter_context(_nvtx.range(name))
        yield
