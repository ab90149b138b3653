"""What is asked of a model before it is exported: names, dtype, device, and hooks that would be lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend.example import LossFunction


def unwrapped(model: object) -> torch.nn.Module:
    """The model itself, also if torch.compile has wrapped it; TraceError for anything but a module."""
    inner = getattr(model, "_orig_mod", model)
    if not isinstance(inner, torch.nn.Module):
        raise TraceError(f"the model must be a torch.nn.Module, got {type(model).__name__}")
    return inner


def tensor_names(model: torch.nn.Module, function: LossFunction) -> dict[torch.Tensor, str]:
    """Every parameter and buffer of the model by its first name; those of a loss module as `loss_fn.NAME`."""
    modules = {"": model}
    if isinstance(function, torch.nn.Module):
        modules["loss_fn."] = function
    names = dict[torch.Tensor, str]()
    for prefix, module in modules.items():
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
                raise TraceError(
                    f"{name!r} has no shape yet; run the model once on a batch before it is compiled"
                )
            if tensor not in names:
                names[tensor] = free_name(prefix + name, names.values()) if prefix else name
    return names


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, with `'` after it until no other tensor has it: names that AICF makes up give way to the model's."""
    while name in taken:
        name += "'"
    return name


def device_of(names: Mapping[torch.Tensor, str], wanted: str | torch.device | None) -> torch.device:
    """The one device of the model's tensors; `wanted` for a model without any."""
    devices = {tensor.device: name for tensor, name in names.items()}
    if len(devices) > 1:
        places = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise TraceError(f"the model lies on several devices ({places}); move it to one with model.to(...)")
    return next(iter(devices), torch.device(wanted or "cpu"))


def dtype_of(names: Mapping[torch.Tensor, str]) -> torch.dtype:
    """The dtype of the model's first float tensor; float32 for a model without any."""
    return next((tensor.dtype for tensor in names if tensor.is_floating_point()), torch.float32)


def refuse_hooks(model: torch.nn.Module, names: Mapping[torch.Tensor, str]) -> None:
    """Raise TraceError for hooks on gradients: a compiled step would not run them."""
    owners: list[tuple[str, Any]] = [*model.named_modules(), *((name, t) for t, name in names.items())]
    for name, owner in owners:
        for hooks in ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"):
            if getattr(owner, hooks, None):
                what = name or type(owner).__name__
                raise TraceError(
                    f"{what!r} has {hooks.strip('_')}, which a compiled step does not run; remove them"
                )
