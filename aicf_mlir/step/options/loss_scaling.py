"""What `compile_train_step` is asked to multiply the loss by: checked, as options of passes, and as tensors of the step's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.frontend import Traced
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.optimizers.group_values import real
from aicf_mlir.passes.autodiff import SCALE
from aicf_mlir.passes.scale_loss import FINITE, GROWTH, SKIPPED


@dataclass(frozen=True)
class LossScale:
    """
    How the loss is scaled, in the words and with the defaults of torch.amp.GradScaler.

    A step with an inf or NaN in a gradient multiplies the scale by `backoff_factor`, `growth_interval` steps in a row without
    one by `growth_factor`. With both factors 1 the scale stays. Raises BindError for what is no scale, factor or interval.
    """

    init_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        scale = torch.tensor(real(self.init_scale, SCALE), dtype=torch.float32).item()
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


class LossScaling:
    """The scale of one step, and its counts; none where none was asked for. The tensors are made when the step is traced."""

    def __init__(self, asked: LossScale | None = None):
        self.asked = asked
        self._tensors: dict[str, torch.Tensor] = {}

    @staticmethod
    def of(asked: object, check_finite: bool = False, precision: Precision | None = None) -> LossScaling:
        """From the arguments of `compile_train_step`; "auto" is what `precision` needs. Raises BindError for what is no scale."""
        by_default = asked.__class__ is str and asked == "auto"
        if by_default:
            asked = None if precision is None else precision.loss_scale
        if asked is None:
            return LossScaling()
        if check_finite:
            left_out = (
                f'leave check_finite out, or pass loss_scale=None to train in "{precision.name}" without a scale'
                if by_default and precision is not None
                else "leave one of them out"
            )
            raise BindError(
                f"check_finite raises for the gradients that loss_scale skips a step for; {left_out}"
            )
        if isinstance(
            asked, (str, bool)
        ):  # True is a number to Python, and a scale of 1 is not what it asks for
            if asked != "dynamic":
                raise BindError(f'{SCALE} must be "dynamic", a number or a LossScale, got {asked!r}')
            return LossScaling(LossScale())
        if isinstance(asked, LossScale):
            return LossScaling(asked)
        return LossScaling(LossScale(real(asked, SCALE), 1.0, 1.0))

    def beside(self, traced: Traced, device: torch.device) -> Traced:
        """`traced` with the tensors of the scale among its buffers. BindError where the model has one of these names."""
        if self.asked is None:
            return traced
        if not self._tensors:
            scale = torch.tensor(self.asked.init_scale, dtype=torch.float32, device=device)
            counts = {name: torch.zeros((), dtype=torch.int64, device=device) for name in (GROWTH, SKIPPED)}
            self._tensors = {SCALE: scale, **counts}
        for name in self._tensors:
            if name in traced.buffers or name in traced.parameters:
                raise BindError(f"the model has a tensor {name!r}, as a step with {SCALE} has; rename it")
        return replace(traced, buffers={**traced.buffers, **self._tensors})

    def check_outputs(self, names: Iterable[str]) -> None:
        """Raise BindError for an output of the loss function with a name that the passes use."""
        if self.asked is not None and FINITE in names:
            raise BindError(f"loss_fn returns an output {FINITE!r}, which a step with {SCALE} has; rename it")

    @property
    def passes(self) -> Mapping[str, str]:
        """The passes that scale, with their options; none where nothing is scaled."""
        if (asked := self.asked) is None:
            return {}
        growth, backoff = float(asked.growth_factor), float(asked.backoff_factor)
        options = f"growth={growth!r} backoff={backoff!r} interval={asked.growth_interval}"
        return {"autodiff": "scaled", "scale-loss": options, "skip-overflow": ""}

    @property
    def skipped(self) -> int:
        """How many steps have been skipped; 0 where nothing is scaled. Waits for the device."""
        return int(self._tensors[SKIPPED].item()) if self._tensors else 0

    def tensor(self, name: str) -> torch.Tensor:
        """A copy of the scale or of a count. BindError for a step without."""
        if self.asked is None:
            raise BindError(
                'the step has no scale of its loss; compile with loss_scale="dynamic" or a number'
            )
        return self._tensors[name].clone()
