"""`meta`: Python numbers of the model that may change between steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class HostNumbers(Effect):
    """The places of the numbers, as `step.guards()` lists them; the request traces again with tensors in their place."""

    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(tuple(given["meta"]))
