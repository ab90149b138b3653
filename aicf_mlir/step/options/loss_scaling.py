"""`loss_scale`: the factor of the loss, which is a tensor of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.optimizers.group_values import real
from aicf_mlir.passes.autodiff import SCALE
from aicf_mlir.passes.scale_loss import FINITE, GROWTH, SKIPPED
from aicf_mlir.step.options.option import Effect


@dataclass(frozen=True)
class LossScale:
    """The scaling of the loss, with the names and defaults of torch.amp.GradScaler.

    A step with an inf or NaN in a gradient multiplies the scale by `backoff_factor`, `growth_interval` steps in a row
    without one by `growth_factor`. With both factors 1 the scale stays. Raises BindError for an invalid scale, factor
    or interval.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        scale = torch.tensor(real(self.init_scale, SCALE), dtype=torch.float32, device="cpu").item()
        if not 0 < scale < math.inf:
            raise BindError(f"{SCALE} must be a finite f32 above 0, got {self.init_scale!r}")
        if not 1 <= real(self.growth_factor, "growth_factor") < math.inf:
            raise BindError(f"growth_factor must be 1 or more, got {self.growth_factor!r}")
        if not 0 < real(self.backoff_factor, "backoff_factor") <= 1:
            raise BindError(f"backoff_factor must be above 0 and at most 1, got {self.backoff_factor!r}")
        if self.growth_interval.__class__ is not int or not 1 <= self.growth_interval < 1 << 31:
            raise BindError(
                f"growth_interval must be a whole number, 1 or more, got {self.growth_interval!r}"
            )


class LossScaling(Effect):
    """The scale of one step, and its counts; none if not requested. The tensors are made when the step is traced."""

    def __init__(self, asked: LossScale | None = None):
        self.asked = asked
        self._tensors: dict[str, torch.Tensor] = {}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make it from arguments; with "auto", the scale that the precision needs, if any."""
        asked: object = given["loss_scale"]
        precision = Precision.of(given["precision"])
        by_default = asked.__class__ is str and asked == "auto"
        if by_default:
            asked = precision.loss_scale
        if asked is None:
            return cls()
        if given["check_finite"]:
            left_out = (
                f'leave check_finite out, or pass loss_scale=None to train in "{precision.name}" without a scale'
                if by_default
                else "leave one of them out"
            )
            raise BindError(
                f"check_finite raises for the gradients that loss_scale skips a step for; {left_out}"
            )
        if isinstance(
            asked, (str, bool)
        ):  # Python treats True as the number 1, which is not the requested scale
            if asked != "dynamic":
                raise BindError(f'{SCALE} must be "dynamic", a number or a LossScale, got {asked!r}')
            return cls(LossScale())
        if isinstance(asked, LossScale):
            return cls(asked)
        return cls(LossScale(real(asked, SCALE), 1.0, 1.0))

    def added(self, traces: Sequence[Traced], device: torch.device) -> list[Traced]:
        """Return the traces with scale and counts added. Raises BindError if the model has one of these names."""
        if self.asked is None:
            return list(traces)
        if not self._tensors:
            scale = torch.tensor(self.asked.init_scale, dtype=torch.float32, device=device)
            counts = {name: torch.zeros((), dtype=torch.int64, device=device) for name in (GROWTH, SKIPPED)}
            self._tensors = {SCALE: scale, **counts}
        for traced in traces:
            for name in self._tensors:
                if name in traced.buffers or name in traced.parameters:
                    raise BindError(f"the model has a tensor {name!r}, as a step with {SCALE} has; rename it")
        return [replace(traced, buffers={**traced.buffers, **self._tensors}) for traced in traces]

    def check_outputs(self, names: Iterable[str]) -> None:
        if self.asked is not None and FINITE in names:
            raise BindError(f"loss_fn returns an output {FINITE!r}, which a step with {SCALE} has; rename it")

    def passes(self, device: str) -> Mapping[str, str]:
        if (asked := self.asked) is None:
            return {}
        growth, backoff = float(asked.growth_factor), float(asked.backoff_factor)
        options = f"growth={growth!r} backoff={backoff!r} interval={asked.growth_interval}"
        return {"autodiff": "scaled", "scale-loss": options, "skip-overflow": ""}

    @property
    def skipped(self) -> int:
        """The number of skipped steps; 0 if nothing is scaled. Waits for the device."""
        return int(self._tensors[SKIPPED].item()) if self._tensors else 0

    def tensor(self, name: str) -> torch.Tensor:
        """Return a copy of the scale or of a count. Raises BindError for a step without a scale."""
        if self.asked is None:
            raise BindError(
                'the step has no scale of its loss; compile with loss_scale="dynamic" or a number'
            )
        return self._tensors[name].clone()
