"""What a compiled step does with its options, in torch: clipping, micro-batches, a loss scale, averages, metrics."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch
from models import Batch
from scaled_training import Scaler
from step_options import Options
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from aicf_mlir import CompiledTrainStep, StateError
from aicf_mlir.frontend.metrics import initial

LossFunction = Callable[[Any, Any], Any]
"""Of a model and a batch: a loss, or a loss and outputs."""

GATHER: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": torch.add,
    "sum": torch.add,
    "max": torch.maximum,
    "min": torch.minimum,
}


class Mirror:
    """One step over a model and an optimizer that several may share; averages, scale and metrics are its own."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss: LossFunction,
        options: Options,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ):
        self.model, self.optimizer, self.loss, self.options = model, optimizer, loss, options
        self.around = around
        """Surrounds each forward and each backward."""
        self.device = next(model.parameters()).device.type
        self.scaler: Scaler | None = None
        if (scale := options.scale) is not None:
            grows = (
                scale.growth_factor > 1
            )  # torch has no factors of 1: a scale that stays is set after each step
            factors = (scale.growth_factor, scale.backoff_factor) if grows else (2.0, 0.5)
            self.scaler = Scaler(self.device, scale.init_scale, *factors, scale.growth_interval)
        self.skipped = 0
        self.average: Any = None
        if options.ema is not None:
            self.average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(options.ema))
        self.trained = {name for name, _ in model.named_parameters()}
        """The parameters that a gradient has come to: a step averages no others."""
        self.gathered, self.count = dict[str, torch.Tensor](), 0
        self.outputs, self.norm = dict[str, torch.Tensor](), torch.zeros(())

    def step(
        self,
        parts: Sequence[Batch],
        changed: Callable[[torch.Tensor], torch.Tensor] | None = None,
        skipped: bool = False,
    ) -> torch.Tensor:
        """Train on the micro-batches, and return the mean of their losses.

        `changed` is done to each gradient. With `skipped` an overflow is in the gradients, whatever they are.
        """
        self.optimizer.zero_grad()
        self.outputs, losses = {}, list[torch.Tensor]()
        for number, batch in enumerate(parts):
            loss = self.told(batch, "" if self.options.accumulate is None else f".{number}")
            losses.append(loss.detach())
            scaled = loss if self.scaler is None else self.scaler.scale(loss)
            with self.around():
                (scaled / len(parts)).backward()
        self.trained = {name for name, p in self.model.named_parameters() if p.grad is not None}
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        for parameter in parameters:
            assert parameter.grad is not None
            if changed is not None:
                parameter.grad.copy_(changed(parameter.grad))
            if skipped:
                parameter.grad.fill_(torch.inf)
        self._update(parameters)
        return torch.stack(losses).double().mean().to(losses[0].dtype)

    def told(self, batch: Batch, suffix: str = "") -> torch.Tensor:
        """The loss of a batch; its outputs are kept and gathered."""
        with self.options.autocast(self.device), self.around():
            answer = self.loss(self.model, batch)
        loss, outputs = answer if isinstance(answer, tuple) else (answer, {})
        self.outputs |= {name + suffix: value.detach().clone() for name, value in outputs.items()}
        for name, kind in self.options.metrics.items():
            value = outputs[name].detach()
            value = value.to(torch.float64 if value.is_floating_point() else torch.int64)
            begun = self.gathered.get(name, torch.full_like(value, initial(kind, value.dtype)))
            self.gathered[name] = GATHER[kind](begun, value)
        self.count += 1
        return loss

    def _update(self, parameters: list[nn.Parameter]) -> None:
        scaler, options = self.scaler, self.options
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if options.clip_grad_value is not None:
            nn.utils.clip_grad_value_(parameters, options.clip_grad_value)
        if (clip := options.clip_grad_norm) is not None:
            limit: Any = clip.max_norm
            self.norm = nn.utils.clip_grad_norm_(parameters, limit, clip.norm_type).detach()
        if scaler is None:
            self.optimizer.step()
        else:
            found: Any = scaler._found_inf_per_device(self.optimizer)  # pyright: ignore[reportPrivateUsage]
            self.skipped += any(value.item() > 0 for value in found.values())
            scaler.step(self.optimizer)
            stays = options.scale is not None and options.scale.growth_factor == 1
            scaler.update(scaler.get_scale() if stays else None)
        if self.average is not None:
            self.average.update_parameters(self.model)

    def read(self) -> dict[str, torch.Tensor]:
        """Everything that the last step has told, as `read` has it of a compiled step."""
        norm = {} if self.options.clip_grad_norm is None else {"grad_norm": self.norm.clone()}
        return {**self.outputs, **norm, **self.kept()}

    def kept(self) -> dict[str, torch.Tensor]:
        """Metrics, averages and scale: what goes on from step to step."""
        found = dict[str, torch.Tensor]()
        if self.count:
            for name, kind in self.options.metrics.items():
                value = self.gathered[name]
                found[f"metrics.{name}"] = value / self.count if kind == "mean" else value.clone()
        if self.average is not None:
            for name, p in self.average.module.named_parameters():
                if name in self.trained:
                    found[f"ema.{name}"] = p.detach().clone()
        if self.scaler is not None:
            found["loss_scale"] = torch.tensor(self.scaler.get_scale())
            found["loss_scale.skipped"] = torch.tensor(self.skipped)
        return found

    def reset_metrics(self) -> None:
        """Gather anew."""
        self.gathered, self.count = {}, 0

    def state(self) -> Any:
        """What is its own, to be loaded again."""
        scaler = None if self.scaler is None else self.scaler.state_dict()
        average = None if self.average is None else self.average.state_dict()
        return copy.deepcopy((self.options, scaler, average, self.skipped, self.gathered, self.count))

    def load(self, state: Any) -> None:
        """Put back what `state` has given."""
        self.options, scaler, average, self.skipped, self.gathered, self.count = copy.deepcopy(state)
        if self.scaler is not None:
            self.scaler.load_state_dict(scaler)
        if self.average is not None:
            self.average.load_state_dict(average)


def read(step: CompiledTrainStep, options: Options) -> dict[str, torch.Tensor]:
    """What a compiled step says beside its loss, on the CPU, by the names that `Mirror.read` has."""
    told = {
        name: value.cpu() for name, value in step.outputs.items()
    }  # the norm too, of a loop body that returns it
    if options.clip_grad_norm is not None and "grad_norm" not in told:
        told["grad_norm"] = step.grad_norm.cpu()
    return {**told, **kept(step, options)}


def kept(step: CompiledTrainStep, options: Options) -> dict[str, torch.Tensor]:
    """What goes on from step to step, by the names that `Mirror.kept` has."""
    found = dict[str, torch.Tensor]()
    if options.metrics:
        with suppress(StateError):  # nothing is gathered yet
            found |= {f"metrics.{name}": value for name, value in step.metrics().items()}
    if options.ema is not None:
        found |= {f"ema.{name}": value for name, value in step.ema.items()}
    if options.scale is not None:
        found |= {"loss_scale": step.loss_scale, "loss_scale.skipped": torch.tensor(step.skipped)}
    return {name: value.detach().cpu() for name, value in found.items()}
