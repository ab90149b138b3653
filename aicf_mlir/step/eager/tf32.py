"""Torch's switches for products and convolutions of f32 operands, set for a time to what a compiled step does.

A compiled step does not follow them, so a comparison does not either. By default torch lets cuDNN round the operands of
convolutions and recurrent layers to TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import torch

BACKENDS: Any = torch.backends
MKLDNN = BACKENDS.mkldnn
PLACES = (
    BACKENDS.cuda.matmul,
    BACKENDS.cudnn.conv,
    BACKENDS.cudnn.rnn,
    MKLDNN.matmul,
    MKLDNN.conv,
    MKLDNN.rnn,
)
"""Each has `fp32_precision`; of the older switches one holds for products on all devices, and one for the rest of cuDNN."""
SET_CUDNN: Callable[[bool], None] = torch._C._set_cudnn_allow_tf32  # pyright: ignore[reportPrivateUsage]
"""`torch.backends.cudnn.allow_tf32 = …`, also after `torch.backends.disable_global_flags()`, as in torch's own test utilities."""
OLDER: tuple[tuple[Callable[[], Any], Callable[[Any], None]], ...] = (
    (lambda: BACKENDS.cuda.matmul.allow_tf32, torch._C._set_cublas_allow_tf32),  # pyright: ignore[reportPrivateUsage]
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (lambda: BACKENDS.cudnn.allow_tf32, SET_CUDNN),
)
"""The older switches: how each is read and written. The second is that of the first for all devices, in words."""


@contextmanager
def tf32(allowed: bool) -> Generator[None]:
    """Let torch round the operands of f32 products to TF32 inside, or forbid it; the switches are those of the process."""
    older = {write: _value(read) for read, write in OLDER}
    newer = [place.fp32_precision for place in PLACES]
    try:
        # torch refuses to read an older switch that disagrees with a newer one: all are set
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        SET_CUDNN(allowed)
        _set(["tf32" if allowed else "ieee"] * len(PLACES))
        yield
    finally:
        for write, value in older.items():
            if value is not None:
                write(value)
        _set(newer)


def _set(precisions: list[str]) -> None:
    for place, precision in zip(PLACES, precisions, strict=True):
        if place.fp32_precision != precision:
            place.fp32_precision = precision


def _value(read: Callable[[], Any]) -> Any:
    """Return the value of an older switch, or None if newer ones disagree with it."""
    try:
        return read()
    except RuntimeError:
        return None
