"""`clip_grad_norm` and `clip_grad_value`: limits of gradients, which are host scalars of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch

from aicf_mlir.errors import BindError
from aicf_mlir.optimizers.group_values import real
from aicf_mlir.optimizers.slots import OptimizerSlot
from aicf_mlir.passes.clip_gradients import MAX_NORM, MAX_VALUE, NORM
from aicf_mlir.runtime.step_numbers import StepNumber
from aicf_mlir.step.options.option import Effect

if TYPE_CHECKING:
    from aicf_mlir.step.request import Request


@dataclass(frozen=True)
class ClipGradNorm:
    """
    A limit of the norm of gradients, as torch.nn.utils.clip_grad_norm_ has it.

    One `max_norm` limits the norm of all gradients together; a sequence of them, one for each param group, limits that of each
    group by itself. `norm_type` is the order of the norm, 2 or `math.inf`, say. Raises BindError for a limit that is NaN or
    negative, and for an order that is not above 0.
    """

    max_norm: float | Sequence[float]
    norm_type: float = 2.0

    def __post_init__(self) -> None:
        for number in self.limits:
            limit(number, MAX_NORM)
        if not real(self.norm_type, "norm_type") > 0:
            raise BindError(f"norm_type must be above 0, as 2 and math.inf are, got {self.norm_type!r}")

    @property
    def limits(self) -> Sequence[float]:
        """The limit, or one for each param group."""
        return self.max_norm if isinstance(self.max_norm, (list, tuple)) else [self.max_norm]  # pyright: ignore[reportReturnType]

    @property
    def per_group(self) -> bool:
        """True if each param group has a limit of its own."""
        return isinstance(self.max_norm, (list, tuple))


@dataclass(frozen=True, eq=False)
class Clipping(Effect):
    """The limits of one step."""

    norm: ClipGradNorm | None = None
    value: float | None = None
    limits: Mapping[str, StepNumber] = field(default_factory=dict[str, StepNumber])
    """The current limits, by the names of their host scalars."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        norm: float | Sequence[float] | ClipGradNorm | None = given["clip_grad_norm"]
        value: float | None = given["clip_grad_value"]
        asked = norm if norm is None or isinstance(norm, ClipGradNorm) else ClipGradNorm(norm)
        limits: Sequence[float] = () if asked is None else asked.limits
        wanted = {OptimizerSlot(k, MAX_NORM).slot: number for k, number in enumerate(limits)}
        if value is not None:
            wanted[MAX_VALUE] = value
        numbers = {name: StepNumber(limit(number, name), limit) for name, number in wanted.items()}
        return cls(asked, value, numbers)

    @property
    def numbers(self) -> Mapping[str, StepNumber]:
        return self.limits

    def check(self, request: Request) -> None:
        """Check that there are as many limits as param groups, if each has its own."""
        if not request.optimizers or self.norm is None or not self.norm.per_group:
            return
        optimizer = request.optimizers[0]
        if len(self.norm.limits) != len(optimizer.param_groups):
            raise BindError(
                f"{MAX_NORM} has {len(self.norm.limits)} limits, the optimizer {len(optimizer.param_groups)} param groups; "
                "give one limit for each group, or a single number for all gradients together"
            )

    def check_outputs(self, names: Iterable[str]) -> None:
        if self.norm is not None and NORM in names:
            raise BindError(
                f"loss_fn returns an output {NORM!r}, which is the norm of a step with {MAX_NORM}; rename it"
            )

    def passes(self, device: str) -> Mapping[str, str]:
        options: list[str] = []
        if self.value is not None:
            options.append("value")
        if self.norm is not None:
            options.append(f"norm={float(self.norm.norm_type)!r}")
            options += ["per-group"] if self.norm.per_group else []
        return {"clip-gradients": " ".join(options)} if options else {}

    def norm_in(self, outputs: Mapping[str, torch.Tensor], device: torch.device) -> torch.Tensor:
        """Return a copy of the norms among the outputs of a step, 0 for a param group without gradients. Raises
        BindError without a limit.
        """
        if self.norm is None:
            raise BindError(
                "the step has no norm of its gradients; compile with clip_grad_norm=…, math.inf limits nothing"
            )
        none = torch.zeros((), device=device)
        norms = [outputs.get(OptimizerSlot(k, NORM).slot, none) for k in range(len(self.norm.limits))]
        return torch.stack(norms) if self.norm.per_group else norms[0].clone()


def limit(value: object, name: str) -> float:
    """Return `value` as a limit: 0 or more, infinity included. Raises BindError, with `name`, for anything else."""
    number = real(value, name)
    if number < 0 or math.isnan(number):
        raise BindError(f"{name} must not be negative, got {number!r}; math.inf limits nothing")
    return number
