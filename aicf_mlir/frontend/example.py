"""The example batch and the loss: optional arguments of a caller, and accepted forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, cast

import torch
from torch.nn.modules.loss import _Loss as TorchLoss  # pyright: ignore[reportPrivateUsage]

from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.structure import EXPECTED, Structure, named
from aicf_mlir.frontend.types import is_supported, stored, supported_dtypes

LossFunction = Callable[
    [torch.nn.Module, Any], torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]
]
"""A function `loss_fn(model, batch)` that returns a 0-d float tensor, or `(loss, {name: tensor})`; the batch has the
step's nesting.
"""


@dataclass(frozen=True)
class TensorSpec:
    """The form that a step expects of one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def default_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Return the mean squared error of `model(x)` against `t`: batch["x"] and batch["t"], the fields `x` and `t`, or the two
    members of a tuple or list.
    """
    x, t = input_and_target(batch)
    return torch.nn.functional.mse_loss(model(x), t)


def input_and_target(batch: Any) -> tuple[Any, Any]:
    """Return the two tensors that a loss compares without a function of the user's."""
    if isinstance(batch, Mapping):
        entries = cast(Mapping[str, Any], batch)
        return entries["x"], entries["t"]
    if isinstance(batch, torch.Tensor):
        raise trace_error("expected a batch of two, (x, t), got one tensor; pass loss_fn=")
    if is_dataclass(batch):
        fields = cast(Any, batch)
        return fields.x, fields.t
    if len(batch) != 2:
        raise trace_error(f"expected a batch of two, (x, t), got {len(batch)} entries; pass loss_fn=")
    return batch[0], batch[1]


def loss_function(loss_fn: object) -> LossFunction:
    """Return `loss_fn` as a function of (model, batch).

    None is the default loss; a torch loss module (`MSELoss()`, `CrossEntropyLoss()`) compares the same two.
    """
    if loss_fn is None:
        return default_loss
    if isinstance(loss_fn, TorchLoss):

        def compared(model: torch.nn.Module, batch: Any) -> torch.Tensor:
            x, t = input_and_target(batch)
            return loss_fn(model(x), t)

        return compared
    if not callable(loss_fn):
        raise trace_error(f"loss_fn must be a function of (model, batch), got {type(loss_fn).__name__}")
    return cast(LossFunction, loss_fn)


@dataclass(frozen=True)
class Form:
    """What every batch of a step is like; it stands for an example."""

    specs: Mapping[str, TensorSpec]
    """By name, in the order of the step's inputs."""
    structure: Structure


def batch_specs(batch: object, device: torch.device) -> tuple[dict[str, TensorSpec], Structure]:
    """Return the expected form of a batch like `batch`, on `device`, by name, and its nesting.

    Raises TraceError unless it has supported, non-empty tensors in dictionaries, tuples and lists.
    """
    if isinstance(batch, Form):
        return dict(batch.specs), batch.structure
    entries, structure = named(batch)
    if not entries:
        raise trace_error(f"the batch is empty; expected {EXPECTED}")
    return {name: _spec(name, tensor, device) for name, tensor in entries.items()}, structure


def _spec(name: str, tensor: object, device: torch.device) -> TensorSpec:
    if not isinstance(tensor, torch.Tensor):
        raise trace_error(f"batch entry {name!r} must be a torch.Tensor, got {type(tensor).__name__}")
    if (why := special(tensor)) is not None:
        raise trace_error(f"batch entry {name!r} is {why}")
    if not is_supported(stored(tensor.dtype)):
        raise trace_error(
            f"batch entry {name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}, uint8"
            f"{AS_REAL[tensor.is_complex()]}"
        )
    if tensor.numel() == 0:
        raise trace_error(f"batch entry {name!r} has no elements: its shape is {tuple(tensor.shape)}")
    return TensorSpec(tuple(tensor.shape), tensor.dtype, device)


def target_spec(loss_fn: object, output: TensorSpec) -> TensorSpec:
    """Return the form of `batch["t"]` when B and D are given: like the output, or class indices for CrossEntropyLoss."""
    if isinstance(loss_fn, torch.nn.CrossEntropyLoss):
        return TensorSpec(output.shape[:1] + output.shape[2:], torch.int64, output.device)
    return output


AS_REAL = ("", "; pass torch.view_as_real(x), and call torch.view_as_complex in the step")
"""The advice by whether a tensor is complex."""


def zeros(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """A batch of zeros."""
    return {
        name: torch.zeros(spec.shape, dtype=spec.dtype, device=spec.device) for name, spec in specs.items()
    }
