"""One step of torch's own on the live objects: the loop in torch that the options of a compiled step correspond to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.frontend.example import LossFunction
from aicf_mlir.frontend.outcome import LOSS, outcome
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.optimizers.slots import OptimizerSlot
from aicf_mlir.passes.autodiff import SCALE
from aicf_mlir.passes.average_weights import AVERAGE, COUNT
from aicf_mlir.passes.clip_gradients import MAX_NORM, MAX_VALUE
from aicf_mlir.passes.scale_loss import GROWTH, SKIPPED
from aicf_mlir.step.eager.live import Live
from aicf_mlir.step.options.clipping import Clipping
from aicf_mlir.step.options.loss_scaling import LossScaling

Results = dict[str, torch.Tensor]
"""The result of a step: "loss", and its outputs by name."""

TorchStep = Callable[[Any], Results]
"""A function that takes a batch and changes the live objects as a step of torch does."""


@dataclass(frozen=True, eq=False)
class TrainingLoop:
    """The loop `loss.backward(); optimizer.step()` with the options of `compile_train_step`; without optimizers the
    loss alone.
    """

    live: Live
    model: torch.nn.Module
    function: LossFunction
    precision: Precision
    clipping: Clipping
    scaling: LossScaling
    accumulate: int | None
    decay: float | None
    """The decay of the moving average."""
    own: Mapping[str, torch.Tensor]
    """The tensors of the step itself, by name: averages, the scale of the loss and its counts."""
    drawn: Callable[[], AbstractContextManager[Callable[[], None]]]
    """Surrounds the forward of all parts: torch draws the numbers of the compiled step; the yielded function is called
    between two parts.
    """

    def __call__(self, batch: Any) -> Results:
        results = self.forward_and_backward(batch)
        if self.live.optimizers:
            self.update()
        return results

    def forward_and_backward(self, batch: Any) -> Results:
        """Return loss and outputs; `.grad` has the gradients of the loss, scaled if requested."""
        parts: Sequence[Any] = [batch] if self.accumulate is None else batch
        total: Results = {}
        with torch.set_grad_enabled(bool(self.live.optimizers)), self.drawn() as next_part:
            for number, part in enumerate(parts):
                if number:
                    next_part()
                with self.precision.autocast():
                    loss, outputs = outcome(self.function(self.model, part), None)
                if self.live.optimizers:
                    _backward(self._scaled(loss / len(parts) if len(parts) > 1 else loss))
                ending = "" if self.accumulate is None else f".{number}"
                total |= {f"{name}{ending}": value.detach().clone() for name, value in outputs.items()}
                share = loss.detach() / len(parts)
                total[LOSS] = total[LOSS] + share if number else share.clone()
        return total

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.scaling.asked is None else loss * self.own[SCALE]

    def update(self) -> None:
        """Apply the gradients: limits, the optimizer, the average."""
        (optimizer,) = self.live.optimizers
        gradients = [
            p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None
        ]
        if self._unscaled(gradients):
            self._clip(optimizer)
            optimizer.step()
        if self.decay is not None:
            self._average()

    def _unscaled(self, gradients: Sequence[torch.Tensor]) -> bool:
        """Divide by the scale, and update the scale as torch.amp.GradScaler does; return False for a step that it skips."""
        if (asked := self.scaling.asked) is None:
            return True
        scale, growth = self.own[SCALE], self.own[GROWTH]
        for gradient in gradients:
            gradient.copy_(
                gradient.to(torch.promote_types(gradient.dtype, torch.float32)) * scale.reciprocal()
            )
        overflow = not all(bool(gradient.isfinite().all()) for gradient in gradients)
        found = torch.full((1,), float(overflow), device=scale.device)
        counted = growth.to(torch.int32)
        factors = (asked.growth_factor, asked.backoff_factor, asked.growth_interval)
        torch._amp_update_scale_(scale, counted, found, *factors)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        growth.copy_(counted)
        self.own[SKIPPED].add_(int(overflow))
        return not overflow

    def _clip(self, optimizer: torch.optim.Optimizer) -> None:
        numbers = self.clipping.numbers
        everything = [p for group in optimizer.param_groups for p in group["params"]]
        if MAX_VALUE in numbers:
            torch.nn.utils.clip_grad_value_(everything, numbers[MAX_VALUE].value)
        if (norm := self.clipping.norm) is None:
            return
        sets = [group["params"] for group in optimizer.param_groups] if norm.per_group else [everything]
        for index, parameters in enumerate(sets):
            limit = numbers[OptimizerSlot(index, MAX_NORM).slot].value
            torch.nn.utils.clip_grad_norm_(parameters, limit, norm.norm_type)

    @torch.no_grad()
    def _average(self) -> None:
        assert self.decay is not None
        count = self.own[COUNT]
        for name, parameter in self.live.trained.items():
            average = self.own[AVERAGE + name]
            average.lerp_(parameter.to(average.dtype), 1 - self.decay) if count else average.copy_(parameter)
        count += 1


def _backward(loss: torch.Tensor) -> None:
    """Run `loss.backward()` with function modes active: layers that a checkpoint computes again inside see them too.

    A call on the tensor itself would go to the mode, which is off during the call.
    """
    edge = torch.autograd.graph.get_gradient_edge(loss)
    torch.autograd.backward([edge], [torch.ones_like(loss)])
