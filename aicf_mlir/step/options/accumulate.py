"""`accumulate`: one update of several micro-batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend.tracing import Traced
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class Accumulation(Effect):
    """The number of micro-batches of a step; None for a step of one batch."""

    count: int | None = None
    apart: bool = False
    """Whether gradients are added at the end, as ranks add them."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        count: object = given["accumulate"]
        apart: object = given["accumulate_apart"]
        if type(apart) is not bool:
            raise BindError(f"accumulate_apart must be True or False, got {apart!r}")
        if count is None:
            if apart:
                raise BindError("accumulate_apart is for steps of several micro-batches; pass accumulate=k")
            return cls()
        if type(count) is not int or count < 1:
            raise BindError(f"accumulate must be a whole number of micro-batches, 1 or more, got {count!r}")
        if given["further_sizes"]:
            raise BindError(
                "further_sizes is for steps of one batch; with accumulate=k name the sizes in example="
            )
        return cls(count, apart)

    def passes(self, device: str) -> Mapping[str, str]:
        apart = " apart" if self.apart else ""
        return {} if self.count is None else {"accumulate": f"count={self.count}{apart}"}

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces. Raises BindError for a hook of a gradient, which would see other numbers than those of torch's
        `(loss / count).backward()`: the mean of gradients is taken at the end.
        """
        for name, parameter in (pair for traced in traces for pair in traced.parameters.items()):
            if (self.count or 1) > 1 and parameter._backward_hooks:
                raise BindError(
                    f"{name!r} has gradient hooks, which a step of several micro-batches does not run; remove them, or change"
                    " the gradient in the optimizer"
                )
        return list(traces)
