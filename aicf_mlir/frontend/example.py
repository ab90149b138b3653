"""The example batch and the loss: what a caller may leave out, and what is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch.nn.modules.loss import _Loss as TorchLoss  # pyright: ignore[reportPrivateUsage]

from aicf_mlir.frontend import source
from aicf_mlir.frontend.names import expect_name
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.types import is_supported, supported_dtypes

LossFunction = Callable[
    [torch.nn.Module, Mapping[str, torch.Tensor]],
    torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]],
]
"""`loss_fn(model, batch) -> loss`, a 0-d float tensor; or `(loss, {name: tensor})`, with outputs beside it."""


@dataclass(frozen=True)
class TensorSpec:
    """What a step expects of one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Batch(dict[str, torch.Tensor]):
    """The batch as the loss function sees it: a missing key says which there are."""

    def __missing__(self, key: object) -> torch.Tensor:
        present = ", ".join(repr(name) for name in self)
        raise trace_error(f"the loss asks for batch[{key!r}], but the batch has {present}", source.here())


def default_loss(model: torch.nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Mean squared error of `model(batch["x"])` against `batch["t"]`."""
    return torch.nn.functional.mse_loss(model(batch["x"]), batch["t"])


def loss_function(loss_fn: object) -> LossFunction:
    """`loss_fn` as a function of (model, batch).

    None is the default loss; a torch loss module (`MSELoss()`, `CrossEntropyLoss()`) compares
    `model(batch["x"])` with `batch["t"]`.
    """
    if loss_fn is None:
        return default_loss
    if isinstance(loss_fn, TorchLoss):
        return lambda model, batch: loss_fn(model(batch["x"]), batch["t"])
    if not callable(loss_fn):
        raise trace_error(f"loss_fn must be a function of (model, batch), got {type(loss_fn).__name__}")
    return cast(LossFunction, loss_fn)


def batch_specs(batch: object, device: torch.device) -> dict[str, TensorSpec]:
    """
    What the step will expect of a batch like `batch`, on `device`.

    Raises TraceError unless it is a dictionary of supported, non-empty tensors.
    """
    if not isinstance(batch, Mapping):
        raise trace_error(
            f'the batch must be a dictionary such as {{"x": x, "t": t}}, got {type(batch).__name__}'
        )
    entries = cast(Mapping[object, object], batch)
    if not entries:
        raise trace_error('the batch is empty; expected a dictionary such as {"x": x, "t": t}')
    specs = dict[str, TensorSpec]()
    for name, tensor in entries.items():
        expect_name("batch entries", "batch entry", name)
        specs[str(name)] = _spec(str(name), tensor, device)
    return specs


def _spec(name: str, tensor: object, device: torch.device) -> TensorSpec:
    if not isinstance(tensor, torch.Tensor):
        raise trace_error(f"batch entry {name!r} must be a torch.Tensor, got {type(tensor).__name__}")
    if (why := special(tensor)) is not None:
        raise trace_error(f"batch entry {name!r} is {why}")
    if not is_supported(tensor.dtype):
        raise trace_error(
            f"batch entry {name!r} is a tensor of {tensor.dtype}; supported are {supported_dtypes()}"
        )
    if tensor.numel() == 0:
        raise trace_error(f"batch entry {name!r} has no elements: its shape is {tuple(tensor.shape)}")
    return TensorSpec(tuple(tensor.shape), tensor.dtype, device)


def target_spec(loss_fn: object, output: TensorSpec) -> TensorSpec:
    """`batch["t"]` when B and D are given: like the output, or class indices for CrossEntropyLoss."""
    if isinstance(loss_fn, torch.nn.CrossEntropyLoss):
        return TensorSpec(output.shape[:1] + output.shape[2:], torch.int64, output.device)
    return output


def zeros(specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    """A batch of zeros."""
    return {
        name: torch.zeros(spec.shape, dtype=spec.dtype, device=spec.device) for name, spec in specs.items()
    }
