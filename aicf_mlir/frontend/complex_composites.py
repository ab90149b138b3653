"""Functions with complex results that torch computes on overlapping memory, written with ops that a graph can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

aten: Any = torch.ops.aten
FFT: Any = torch.fft


def stft(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> torch.Tensor:
    """Torch's transform of overlapping frames: [batch.., frequencies, frames]."""
    hop, width = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    frames = x.unfold(-1, n_fft, hop)
    if window is not None or width < n_fft:
        shape = (
            window
            if window is not None
            else torch.ones(
                width, dtype=frames.dtype.to_real() if frames.is_complex() else frames.dtype, device=x.device
            )
        )
        left = (n_fft - width) // 2
        frames = frames * torch.nn.functional.pad(shape, (left, n_fft - width - left))
    half = (
        not (x.is_complex() or (window is not None and window.is_complex())) if onesided is None else onesided
    )
    norm = "ortho" if normalized else "backward"
    found: torch.Tensor = (FFT.rfft if half else FFT.fft)(frames, norm=norm).transpose(-1, -2)
    return found if return_complex or x.is_complex() else torch.view_as_real(found)


def centered_stft(
    x: torch.Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: torch.Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """The same with padding at both ends."""
    if center:
        rows = x.reshape(-1, x.shape[-1])
        padded = torch.nn.functional.pad(rows, (n_fft // 2, n_fft // 2), mode=pad_mode)
        x = padded.reshape(*x.shape[:-1], -1)
    return stft(x, n_fft, hop_length, win_length, window, *args, **kwargs)


COMPOSITES: Mapping[Any, Callable[..., Any]] = {aten.stft.default: stft, aten.stft.center: centered_stft}
"""The replacements by the op."""
