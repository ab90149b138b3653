"""The work of a step, by name, on the time line of a recorder: torch's profiler, and for a step on CUDA NVTX."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

_nvtx: Any = torch.cuda.nvtx

RECORDER: Any = torch.autograd.profiler
"""Torch's profiler; reading `_is_profiler_enabled` is the cost of a step without a recorder: 20 ns."""

_NOTHING = nullcontext()


def named_range(name: str, on_cuda: bool) -> AbstractContextManager[None]:
    """Return a context that names the block on the time lines that are recorded now."""
    if RECORDER._is_profiler_enabled:
        return _recorded(name, on_cuda)
    return _nvtx.range(name) if on_cuda else _NOTHING


@contextmanager
def _recorded(name: str, on_cuda: bool) -> Generator[None]:
    with torch.profiler.record_function(name), _nvtx.range(name) if on_cuda else _NOTHING:
        yield
