"""The most memory of a GPU that torch and AICF have in use at the same moment."""

from __future__ import annotations

from typing import Any

import torch

from aicf_mlir import _C


class Peak:
    """Bytes, from when it is made on. Each allocation of AICF ends a span, and torch's own most is that of the span.

    Within a span AICF holds what it held at its beginning or end, or less, so the number is not less than there is.
    """

    def __init__(self) -> None:
        self._most = self._held = 0
        self._allocate: Any = _C.Arena
        torch.cuda.reset_peak_memory_stats()
        _C.Arena = self._arena  # pyright: ignore[reportAttributeAccessIssue]

    def _arena(self, *args: Any, **kwargs: Any) -> _C.Arena:
        self._end_span()
        made = self._allocate(*args, **kwargs)
        self._held = _own()
        return made

    def _end_span(self) -> None:
        self._most = max(self._most, max(self._held, _own()) + torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    def stop(self) -> int:
        """The most so far; nothing is counted any more."""
        self._end_span()
        _C.Arena = self._allocate  # pyright: ignore[reportAttributeAccessIssue]
        return self._most


def _own() -> int:
    """Bytes that AICF holds."""
    return _C.memory_stats("cuda")["live_bytes"]
