"""The live objects that a step of torch can change: read by name, and restored."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from aicf_mlir.frontend.model import tensor_names
from aicf_mlir.frontend.types import in_real


@dataclass(frozen=True, eq=False)
class Live:
    """The modules and optimizers of a step, and the tensors that it has in common with torch."""

    modules: Mapping[str, torch.nn.Module]
    """The modules by the prefix of their tensors' names; the model is ""."""
    trained: Mapping[str, torch.nn.Parameter]
    """The trained parameters by name."""
    others: Mapping[str, torch.Tensor]
    """The other tensors of the user's that the step reads or updates, by name."""
    optimizers: Sequence[torch.optim.Optimizer]
    batch: Any
    """The batch in the form in which the step takes it; a list if it accumulates."""

    def observed(self) -> dict[str, torch.Tensor]:
        """Return copies of all that a step may change, by the names used in a report."""
        found = {f"parameter {name!r}": parameter for name, parameter in self.trained.items()}
        others = {**self.others, **self.buffers}  # a buffer may be another tensor by now
        found |= {f"buffer {name!r}": tensor for name, tensor in others.items() if name not in self.trained}
        for name, parameter in self.trained.items():
            for key, value in self.state_of(parameter).items():
                found[f"state {key!r} of {name!r}"] = torch.as_tensor(value, device="cpu")
        return {name: on_host(tensor) for name, tensor in found.items()}

    @property
    def buffers(self) -> dict[str, torch.Tensor]:
        """Return every parameter and buffer of the current modules, by name."""
        return {name: tensor for tensor, name in tensor_names(self.modules).items()}

    def state_of(self, parameter: torch.nn.Parameter) -> dict[str, Any]:
        """Return the tensors and numbers that an optimizer keeps for a parameter; None of SGD is no state."""
        entries: list[dict[str, Any]] = [each.state.get(parameter, {}) for each in self.optimizers]
        return {
            key: value
            for each in entries
            for key, value in each.items()
            if isinstance(value, (torch.Tensor, int, float))
        }

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return copies of the gradients that torch has left in `.grad`, by the parameter's name in a report."""
        held = {name: parameter.grad for name, parameter in self.trained.items()}
        return {f"parameter {name!r}": on_host(grad) for name, grad in held.items() if grad is not None}

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """Return all parameters whose `.grad` a step may write."""
        found = {id(p): p for module in self.modules.values() for p in module.parameters()}
        found |= {id(p): p for p in self.trained.values()}
        return list(found.values())

    @contextmanager
    def kept(self) -> Generator[None]:
        """Restore, after the block, gradients, what requires one, attributes of modules, values of tensors and states of torch's
        generators.
        """
        with self._attributes(), self._gradients(), self._values(), _generators_kept():
            yield

    @contextmanager
    def _attributes(self) -> Generator[None]:
        parts = {id(part): part for module in self.modules.values() for part in module.modules()}.values()
        owners: list[dict[str, Any]] = []
        for part in parts:
            own: dict[str, Any] = vars(part)
            owners += [own, own["_parameters"], own["_buffers"], own["_modules"]]
        saved = [(own, dict(own)) for own in owners]
        try:
            yield
        finally:
            for own, before in saved:
                if [(key, id(each)) for key, each in own.items()] != [(k, id(e)) for k, e in before.items()]:
                    own.clear()
                    own.update(before)

    @contextmanager
    def _gradients(self) -> Generator[None]:
        saved = [(parameter, parameter.grad, parameter.requires_grad) for parameter in self.parameters]
        for parameter, *_ in saved:
            parameter.grad = None
        try:
            yield
        finally:
            for parameter, gradient, is_needed in saved:
                parameter.grad = gradient
                parameter.requires_grad_(is_needed)

    @contextmanager
    def _values(self) -> Generator[None]:
        tensors = {
            id(t): t for t in (*tensor_names(self.modules), *self.trained.values(), *self.others.values())
        }
        saved = [(tensor, tensor.data, tensor.detach().clone()) for tensor in tensors.values()]
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, memory, before in saved:
                    if tensor.data_ptr() != memory.data_ptr():  # by `.data = …`, as some optimizers do
                        tensor.data = memory
                    tensor.detach().copy_(before)


@contextmanager
def _generators_kept() -> Generator[None]:
    devices = [*range(torch.cuda.device_count())] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):  # pyright: ignore[reportUnknownMemberType]
        yield


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in f64 on the host, of complex numbers the parts; integers too, which f64 holds up to 2^53."""
    return in_real(tensor.detach()).to("cpu", torch.float64, copy=True)


def moved(tensors: Iterable[torch.Tensor], unit: float, generator: torch.Generator) -> None:
    """Move each floating element in place by up to `unit`, relatively; tensors of whole numbers stay."""
    with torch.no_grad():
        for tensor in tensors:
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            noise = torch.rand(tensor.shape, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
            value = tensor.detach().to("cpu", torch.float64)
            other = (value * (1 + unit * noise)).to(tensor.dtype)
            kept = torch.where(other.isfinite(), other.double(), value)
            tensor.detach().copy_(kept)


def is_whole(tensor: torch.Tensor) -> bool:
    """True if a tensor has only whole numbers, as class indices and masks have: these are exact."""
    return not tensor.is_floating_point() or bool((tensor == tensor.round()).all())
