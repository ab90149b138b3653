"""`accumulate`: one update of several micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from aicf_mlir.errors import BindError
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class Accumulation(Effect):
    """The number of micro-batches of a step; None for a step of one batch."""

    count: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        count: object = given["accumulate"]
        if count is None:
            return cls()
        if type(count) is not int or count < 1:
            raise BindError(f"accumulate must be a whole number of micro-batches, 1 or more, got {count!r}")
        if given["further_sizes"]:
            raise BindError(
                "further_sizes is for steps of one batch; with accumulate=k name the sizes in example="
            )
        return cls(count)

    def passes(self, device: str) -> Mapping[str, str]:
        return {} if self.count is None else {"accumulate": f"count={self.count}"}
