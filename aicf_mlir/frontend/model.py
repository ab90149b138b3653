"""Checks of a model before it is exported: names, dtype, device, and hooks that would be lost."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

import torch
from torch.nn.parallel import DistributedDataParallel

from aicf_mlir.errors import BindError, TraceError
from aicf_mlir.frontend.behind import modules_behind
from aicf_mlir.frontend.example import LossFunction
from aicf_mlir.frontend.library import class_attribute, nested
from aicf_mlir.frontend.reads import named_modules
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.special import special
from aicf_mlir.frontend.torch_state import global_hooks


def unwrapped(model: object) -> torch.nn.Module:
    """Return the model itself, also if torch.compile or DistributedDataParallel has wrapped it.

    Raises TraceError for anything but a module.
    """
    inner = getattr(model, "_orig_mod", model)
    if isinstance(inner, DistributedDataParallel):
        inner = cast(Any, inner).module
    if not isinstance(inner, torch.nn.Module):
        raise TraceError(f"the model must be a torch.nn.Module, got {type(model).__name__}")
    for path, module in named_modules(inner):
        if isinstance(module, torch.jit.ScriptModule):
            raise TraceError(
                f"the model has TorchScript ({f'{path!r}, ' if path else ''}{type(module).__name__}), whose code is not Python's;"
                " compile the module that it was made from"
            )
    return inner


def modules_of(model: torch.nn.Module, function: LossFunction) -> dict[str, torch.nn.Module]:
    """Return the model under "", and every other module that the loss function is or finds in its closure, by name."""
    modules = {"": model}
    if isinstance(function, torch.nn.Module):
        modules["loss_fn"] = function
    inner = {id(module) for module in model.modules()}
    for name, module in modules_behind(function).items():
        if id(module) not in inner:
            modules[name] = module
            inner |= {id(part) for part in module.modules()}
    return modules


def tensor_names(modules: Mapping[str, torch.nn.Module]) -> dict[torch.Tensor, str]:
    """Return every parameter and buffer of the step's modules by its first name; names of the model have no prefix."""
    names = dict[torch.Tensor, str]()
    for path, module in modules.items():
        prefix = f"{path}." if path else ""
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
                raise TraceError(
                    f"{name!r} has no shape yet; run the model once on a batch before it is compiled"
                )
            if (why := special(tensor)) is not None:
                raise trace_error(f"{prefix + name!r} is {why}")
            if tensor not in names:
                names[tensor] = free_name(prefix + name, names.values()) if prefix else name
    return names


def free_name(name: str, taken: Collection[str]) -> str:
    """Return `name`, with `'` appended until no other tensor has it: names that AICF makes give way to the model's."""
    while name in taken:
        name += "'"
    return name


def device_of(names: Mapping[torch.Tensor, str], wanted: str | torch.device | None) -> torch.device:
    """Return the one device of the model's tensors; `wanted` for a model without any.

    A module on "meta" has no values: it is there to be called with other tensors, by `functional_call`.
    """
    devices = {tensor.device: name for tensor, name in names.items()}
    if len(devices) > 1:
        devices.pop(torch.device("meta"), None)
    if len(devices) > 1:
        places = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise TraceError(f"the model lies on several devices ({places}); move it to one with model.to(...)")
    return next(iter(devices), torch.device(wanted or "cpu"))


def dtype_of(names: Mapping[torch.Tensor, str]) -> torch.dtype:
    """Return the dtype of the model's first float tensor; float32 for a model without any."""
    return next((tensor.dtype for tensor in names if tensor.is_floating_point()), torch.float32)


def check_dtype(model: torch.nn.Module, dtype: torch.dtype | None) -> None:
    """Raise BindError for a parameter of a float type other than the requested one; None requests none."""
    for name, parameter in model.named_parameters():
        if dtype is not None and parameter.is_floating_point() and parameter.dtype != dtype:
            raise BindError(
                f"dtype={dtype}, but parameter {name!r} is {parameter.dtype}; call model.to({dtype}) first, or drop dtype="
            )


def ddp_of(model: object) -> Any:
    """Return the DistributedDataParallel that has wrapped a model; None for any other."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, DistributedDataParallel) else None


FORWARD_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
TENSOR_HOOKS = "_backward_hooks"
"""Those of a parameter, by `register_hook`; a module has other hooks under the same name."""
GRADIENT_HOOKS = (TENSOR_HOOKS, "_backward_pre_hooks", "_post_accumulate_grad_hooks")


def refuse_hooks(
    modules: Mapping[str, torch.nn.Module],
    names: Mapping[torch.Tensor, str],
    *,
    called_of: Sequence[object] = (),
) -> None:
    """Raise TraceError for hooks that a compiled step would not run: hooks of every module, and on gradients, but for
    `register_hook` of the parameters of the modules `called_of`.
    """
    called = {id(p) for each in called_of if isinstance(each, torch.nn.Module) for p in each.parameters()}
    for kind, hook in global_hooks():
        raise TraceError(
            f"torch has global {kind} ({getattr(hook, '__name__', type(hook).__name__)}), which a compiled step does not run;"
            " remove them"
        )
    owners: list[tuple[str, Any]] = [
        (f"{path}.{name}".strip("."), part)
        for path, module in modules.items()
        for name, part in named_modules(module)
    ]
    for name, part in owners:
        if isinstance(part, DistributedDataParallel):
            raise TraceError(
                f"{repr(name) if name else 'the model'} is a DistributedDataParallel, whose collectives a step does not follow;"
                " pass it itself to compile_train_step, or its .module with mesh="
            )
    for name, owner in [*owners, *((name, t) for t, name in names.items())]:
        for hooks in GRADIENT_HOOKS:
            held: Mapping[Any, Any] = getattr(owner, hooks, None) or {}
            is_called = hooks == TENSOR_HOOKS and id(owner) in called
            if held and not (
                is_called and all(type(_function_of(hook)) is FunctionType for hook in held.values())
            ):
                what = name or type(owner).__name__
                raise TraceError(
                    f"{what!r} has {hooks.strip('_')}, which a compiled step does not run; remove them"
                )


def code_of_hooks(modules: Mapping[str, torch.nn.Module]) -> frozenset[CodeType]:
    """Return the code of forward hooks and of parameters' hooks, which is traced like that of `forward`; its lasting effects
    would happen once only.
    """
    parts = [part for module in modules.values() for _, part in named_modules(module)]
    hooks: list[Any] = [
        hook for part in parts for held in FORWARD_HOOKS for hook in vars(part)[held].values()
    ]
    tensors = [tensor for part in parts for tensor in vars(part)["_parameters"].values()]
    of_tensors: list[dict[int, Any]] = [getattr(tensor, TENSOR_HOOKS, None) or {} for tensor in tensors]
    hooks += [hook for held in of_tensors for hook in held.values()]
    functions = [function for hook in hooks if type(function := _function_of(hook)) is FunctionType]
    return frozenset(code for function in functions for code in nested(function.__code__))


def _function_of(hook: Any) -> Any:
    """Return the function that runs when a hook is called."""
    kind = cast("type[Any]", type(hook))
    if kind is functools.partial:
        return _function_of(hook.func)
    if kind is MethodType:
        return hook.__func__
    return hook if kind is FunctionType else class_attribute(kind, "__call__")
