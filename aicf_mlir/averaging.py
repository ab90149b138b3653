"""The moving average of the parameters of a step: its decay, and its tensors by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.group_values import real
from aicf_mlir.passes.average_weights import AVERAGE, COUNT


class WeightAverage:
    """The averages of one step; none without a decay. They begin as the parameters are when the step is traced."""

    def __init__(self, decay: float | None = None):
        """Raises BindError for what is no decay."""
        self.decay = None if decay is None else real(decay, "ema")
        if self.decay is not None and not 0 <= self.decay < 1:
            raise BindError(f"ema must be a decay from 0 to below 1, as 0.999 is, got {decay!r}")
        self._tensors: dict[str, torch.Tensor] = {}

    def beside(self, traced: Traced, device: torch.device) -> Traced:
        """`traced` with the averages among its buffers. BindError where the model has a tensor of such a name."""
        if self.decay is None:
            return traced
        self._tensors.setdefault(COUNT, torch.zeros((), dtype=torch.int64, device=device))
        own = {COUNT: self._tensors[COUNT]}
        for name, parameter in traced.parameters.items():
            if (key := AVERAGE + name) not in self._tensors:
                self._tensors[key] = (
                    parameter.detach().clone(memory_format=torch.contiguous_format).to(device)
                )
            own[key] = self._tensors[key]
        for name in own:
            if name in traced.buffers or name in traced.parameters:
                raise BindError(f"the model has a tensor {name!r}, as a step with ema has; rename it")
        return replace(traced, buffers={**traced.buffers, **own})

    @property
    def passes(self) -> Mapping[str, str]:
        """The pass that averages, with its option; none where nothing is averaged."""
        return {} if self.decay is None else {"average-weights": f"decay={self.decay!r}"}

    def values(self) -> dict[str, torch.Tensor]:
        """A copy of the average of each parameter, by its name. BindError for a step without."""
        if self.decay is None:
            raise BindError("the step has no average of its parameters; compile with ema=0.999, say")
        return {
            name.removeprefix(AVERAGE): tensor.clone()
            for name, tensor in self._tensors.items()
            if name != COUNT
        }
