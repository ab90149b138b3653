"""`ema`: moving averages of the parameters of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.optimizers.group_values import real
from aicf_mlir.passes.average_weights import AVERAGE, COUNT
from aicf_mlir.step.options.option import Effect


class WeightAverage(Effect):
    """The averages of one step; none without a decay.

    Each belongs to a parameter, under any name, and begins with the parameter's value when a step that trains it is
    compiled.
    """

    def __init__(self, decay: float | None = None):
        """Take a decay. Raises BindError for an invalid one."""
        self.decay = None if decay is None else real(decay, "ema")
        if self.decay is not None and not 0 <= self.decay < 1:
            raise BindError(f"ema must be a decay from 0 to below 1, as 0.999 is, got {decay!r}")
        self._count: torch.Tensor | None = None
        self._kept: dict[str, tuple[torch.nn.Parameter, torch.Tensor]] = {}
        """The parameter and its average, by name."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        return cls(given["ema"])

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces with the averages and their count added. Raises BindError if the model has a tensor of one
        of their names.

        The kept averages stay unchanged: the new ones may be dropped, and `adopt` takes them over.
        """
        if self.decay is None:
            return list(traces)
        count = torch.zeros((), dtype=torch.int64, device=device) if self._count is None else self._count
        averages = {id(parameter): average for parameter, average in self._kept.values()}
        found: list[Traced] = []
        for traced in traces:
            own = {COUNT: count}
            for name, parameter in traced.parameters.items():
                average = _average(parameter, averages.get(id(parameter)), device)
                own[AVERAGE + name] = averages[id(parameter)] = average
            for name in own:
                if name in traced.buffers or name in traced.parameters:
                    raise BindError(f"the model has a tensor {name!r}, as a step with ema has; rename it")
            found.append(replace(traced, buffers={**traced.buffers, **own}))
        return found

    def adopt(self, traced: Traced) -> None:
        """Adopt the averages of this step, and no others."""
        if self.decay is None:
            return
        self._count = traced.buffers[COUNT]
        self._kept = {
            name: (parameter, traced.buffers[AVERAGE + name]) for name, parameter in traced.parameters.items()
        }

    def passes(self, device: str) -> Mapping[str, str]:
        return {} if self.decay is None else {"average-weights": f"decay={self.decay!r}"}

    def values(self) -> dict[str, torch.Tensor]:
        """Return a copy of the average of each parameter, by its name. Raises BindError for a step without averages."""
        if self.decay is None:
            raise BindError("the step has no average of its parameters; compile with ema=0.999, say")
        return {name: average.clone() for name, (_, average) in self._kept.items()}


def _average(parameter: torch.Tensor, kept: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Return the kept average of a parameter, in its current type; the parameter itself if nothing of its shape is kept."""
    if kept is not None and kept.shape == parameter.shape:
        return kept.to(parameter.dtype)
    return parameter.detach().clone(memory_format=torch.contiguous_format).to(device)
