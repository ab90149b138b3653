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
PLACES = (BACKENDS.cuda.matmul, BACKENDS.cudnn.conv, BACKENDS.cudnn.rnn)
"""Each has `fp32_precision`; of the older switches one holds for the first, and one for the other two."""
SET_CUDNN: Callable[[bool], None] = torch._C._set_cudnn_allow_tf32  # pyright: ignore[reportPrivateUsage]
"""`torch.backends.cudnn.allow_tf32 = …`, also after `torch.backends.disable_global_flags()`, as in torch's own test utilities."""


@contextmanager
def tf32(allowed: bool) -> Generator[None]:
    """Let torch round the operands of f32 products to TF32 inside, or forbid it; the switches are those of the process."""
    older = _value(torch.get_float32_matmul_precision), _value(lambda: BACKENDS.cudnn.allow_tf32)
    newer = [place.fp32_precision for place in PLACES]
    try:
        # torch refuses to read an older switch that disagrees with a newer one: all are set
        torch.set_float32_matmul_precision("high" if allowed else "highest")
        SET_CUDNN(allowed)
        _set(["tf32" if allowed else "ieee"] * len(PLACES))
        yield
    finally:
        if older[0] is not None:
            torch.set_float32_matmul_precision(older[0])
        if older[1] is not None:
            SET_CUDNN(older[1])
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
