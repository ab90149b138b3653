"""`torch.amp.GradScaler` while a loop body is traced: its verbs are ops of the step, and its tensors state of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import torch

from aicf_mlir.frontend import source
from aicf_mlir.frontend.library import is_librarys
from aicf_mlir.frontend.reads import Read
from aicf_mlir.frontend.source import quoted, trace_error

SETTINGS = ("_scale", "_growth_tracker", "_growth_factor", "_backoff_factor", "_growth_interval", "_enabled")
"""The attributes that a step reads; a scaler with others needs another step."""

OPEN = "_per_optimizer_states"
"""The attribute with the optimizers whose gradients are unscaled, or that are stepped, since the last update."""

VERBS = ("scale", "unscale_", "step", "update", "get_scale")


class Stage(Enum):
    """What a body has done with the gradients of an optimizer since the last `update()`."""

    UNSCALED = "calls {name}.unscale_() a second time since {name}.update()"
    STEPPED = "calls {name}.{verb}() for an optimizer that it has stepped since {name}.update()"


@dataclass
class Unscaled:
    """The gradients of an optimizer since the last `update()`."""

    found: torch.Tensor
    """True if one of them is not finite."""
    stage: Stage = Stage.UNSCALED


def tensors_of(scaler: torch.amp.GradScaler, device: torch.device) -> dict[str, torch.Tensor]:
    """Return the state of a scaler by torch's names, made on `device` if it is not there yet."""
    own: Any = scaler
    if own._scale is None:
        own._lazy_init_scale_growth_tracker(device)
    return {"scale": vars(own)["_scale"], "growth_tracker": vars(own)["_growth_tracker"]}


def reads_of(name: str, scaler: torch.amp.GradScaler) -> Iterator[Read]:
    """Yield the places of a scaler that its step depends on."""
    for key in (*SETTINGS, OPEN):
        yield Read(f"{name}.{key}", "item", vars(scaler), key, may_be_host_scalar=False)
    yield Read(f"{name}.{OPEN}", "items", vars(scaler)[OPEN], may_be_host_scalar=False)


class Scaling:
    """The verbs of one scaler, for one run of a body."""

    def __init__(self, name: str, scaler: torch.amp.GradScaler, params_of: Callable[[Any], Sequence[Any]]):
        self._name = name
        own: Any = scaler
        changed = [verb for verb in VERBS if not is_librarys(getattr(type(scaler), verb))]
        if changed:
            self._refuse(
                f"uses {type(scaler).__name__}, whose {changed[0]} is not torch's", "use torch's own"
            )
        if own.__dict__[OPEN]:
            self._refuse(
                f"begins between {name}.unscale_() or {name}.step() and {name}.update()", "call it before"
            )
        self._scale, self._growth = cast(torch.Tensor, own._scale), cast(torch.Tensor, own._growth_tracker)
        self._factors: tuple[float, float] = own._growth_factor, own._backoff_factor
        self._interval: int = own._growth_interval
        self._params_of = params_of
        self._open: dict[int, Unscaled] = {}

    @property
    def verbs(self) -> dict[str, Callable[..., Any]]:
        """The verbs by name."""
        return {
            "scale": self.scale,
            "unscale_": self.unscale,
            "step": self.step,
            "update": self.update,
            "get_scale": lambda: self._scale.item(),
            "is_enabled": lambda: True,
        }

    def scale(self, outputs: Any) -> Any:
        """Multiply a tensor, or those in an iterable, by the scale."""
        if isinstance(outputs, torch.Tensor):
            return outputs * self._scale
        each = map(self.scale, outputs)
        kind: Any = cast(Any, type)(outputs)
        return kind(each) if any(kind is known for known in (list, tuple)) else each

    def unscale(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer by the scale, and look for one that is not finite."""
        if (before := self._open.get(id(optimizer))) is not None:
            self._refuse(before.stage.value.format(name=self._name, verb="unscale_"), "leave it out")
        gradients = [param.grad for param in self._params_of(optimizer) if param.grad is not None]
        if not gradients:
            self._refuse(
                f"calls {self._name}.step() or {self._name}.unscale_() where no parameter has a gradient",
                "call backward() before",
            )
        if any(gradient.dtype is torch.float16 for gradient in gradients):
            self._refuse("unscales float16 gradients", "keep the parameters in float32, as torch asks")
        with torch.no_grad():
            inverse = self._scale.double().reciprocal().float()
            finite = torch.stack([gradient.isfinite().all() for gradient in gradients]).all()
            self._open[id(optimizer)] = Unscaled(finite.logical_not())
            for gradient in gradients:
                if gradient.dtype is torch.bfloat16:  # the product is rounded once
                    gradient.copy_(gradient.float() * inverse)
                else:
                    gradient.mul_(inverse)

    def step(self, optimizer: Any, **named: Any) -> Any:
        """Step an optimizer if its gradients are finite."""
        if named:
            self._refuse(f"calls {self._name}.step(optimizer, …) with a closure", "call backward() before")
        if (before := self._open.get(id(optimizer))) is None:
            self.unscale(optimizer)
        elif before.stage is Stage.STEPPED:
            self._refuse(before.stage.value.format(name=self._name, verb="step"), "leave it out")
        unscaled = self._open[id(optimizer)]
        unscaled.stage = Stage.STEPPED
        optimizer.step(taken=unscaled.found.logical_not())

    def update(self, new_scale: Any = None) -> None:
        """Move the scale on, or set it."""
        with torch.no_grad():
            if new_scale is not None:
                self._scale.copy_(new_scale) if isinstance(new_scale, torch.Tensor) else self._scale.fill_(
                    new_scale
                )
            elif not self._open:
                self._refuse(
                    f"calls {self._name}.update() before {self._name}.step()", "step an optimizer first"
                )
            else:
                self._move()
        self._open = {}

    def _move(self) -> None:
        found = torch.stack([unscaled.found for unscaled in self._open.values()]).any()
        wide, (growth, backoff) = self._scale.double(), self._factors
        grown, count = (wide * growth).float(), self._growth + 1
        grown, is_due = torch.where(grown.isfinite(), grown, self._scale), count == self._interval
        moved = torch.where(is_due, grown, self._scale)
        self._scale.copy_(torch.where(found, (wide * backoff).float(), moved))
        self._growth.copy_(torch.where(found | is_due, torch.zeros_like(count), count))

    def end(self) -> None:
        """Raise TraceError if torch's scaler would refuse the next call of the body."""
        if self._open:
            self._refuse(f"ends before {self._name}.update()", f"call {self._name}.update() last")

    def _refuse(self, what: str, instead: str) -> None:
        location = source.here()
        raise trace_error(f"the loop body {what}{quoted(location)}; {instead}", location)
