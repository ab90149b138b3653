"""Numbers to show that may still be computed: read without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aicf_mlir.errors import BindError


class Readings:
    """The values of some numbers at one point of their devices' work, known when that point has been reached."""

    def __init__(self, values: Mapping[str, object]):
        """Begin to read; tensors on CUDA by a copy after the present work of their current stream."""
        self._values: dict[str, object] = {}
        self._events: list[torch.cuda.Event] = []
        for name, value in values.items():
            if isinstance(value, torch.Tensor) and value.is_cuda:
                value = self._begin(value)
            self._values[name] = value

    def _begin(self, value: torch.Tensor) -> torch.Tensor:
        kept = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
        with torch.no_grad(), torch.cuda.device(value.device):
            kept.copy_(value, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._events.append(event)
        return kept

    @property
    def are_known(self) -> bool:
        """True if the devices have come so far."""
        return all(event.query() for event in self._events)

    def text(self) -> str:
        """The values as text, `loss 0.2513 lr 0.001`. Waits for values that are not known yet."""
        for event in self._events:
            event.synchronize()
        return "  ".join(f"{name} {_text(value)}" for name, value in self._values.items())


def expect_showable(name: str, value: object) -> object:
    """`value` as it is kept until it is read, without its graph. BindError for a tensor of several elements."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.numel() != 1:
        raise BindError(
            f"progress shows numbers: {name!r} is a tensor of shape {list(value.shape)}; reduce it to one element"
        )
    return value.detach() if value.requires_grad else value


def _text(value: object) -> str:
    if isinstance(value, torch.Tensor):
        value = value.item()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
