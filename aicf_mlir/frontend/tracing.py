"""`trace`: a model, a loss and an optimizer become one function of the nn dialect."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import default_decompositions
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.errors import TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.bindings import Binding, bind
from aicf_mlir.frontend.example import (
    LossFunction,
    TensorSpec,
    batch_specs,
    loss_function,
    target_spec,
)
from aicf_mlir.frontend.export import ExportedStep, export, function_location
from aicf_mlir.frontend.importer import Importer, UnsupportedNode
from aicf_mlir.frontend.optimizer import describe, trained_parameters
from aicf_mlir.frontend.source import SourceLocation, trace_error
from aicf_mlir.frontend.types import describe as describe_tensor


@dataclass(frozen=True)
class Traced:
    """What the front end saw: forward and loss as text, and the user's tensors behind its arguments."""

    module: ModuleOp
    """One function; its arguments are the inputs, the trained parameters, then what is only read."""
    parameters: dict[str, torch.nn.Parameter]
    """By name: the trained parameters that the step reads."""
    buffers: dict[str, torch.Tensor]
    """By name: frozen parameters, buffers and other tensors that the step reads."""
    inputs: dict[str, TensorSpec]
    """By name: what every batch must look like."""

    def __str__(self) -> str:
        return str(self.module)


def trace(
    model: torch.nn.Module,
    loss_fn: LossFunction | torch.nn.Module | None = None,
    example: Mapping[str, torch.Tensor] | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    name: str = "step",
    B: int | None = None,
    D: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device | None = None,
) -> Traced:
    """
    Write down forward and loss of one train step of `model`, as a function called `name`.

    `loss_fn(model, batch)` returns a 0-d float tensor; by default it is the mean squared error of `model(batch["x"])` against
    `batch["t"]`, and a torch loss module compares the same two. `example` is a batch: only its names, shapes and dtypes
    matter. With `B` and `D` instead, "x" is [B, D] of `dtype` and "t" is like the model's output (for CrossEntropyLoss,
    class indices). A parameter is trained if it requires a gradient and, where there is an `optimizer`, is one of its
    parameters; then the function also says how each param group is updated. Nothing runs, nothing of the model changes.

    Raises TraceError, with the user's file and line where there is one.
    """
    caller = source.of_frame(sys._getframe(1))
    if not name.isidentifier():
        raise TraceError(f"the name of a step must be an identifier such as 'step', got {name!r}")
    if not isinstance(model, torch.nn.Module):
        raise TraceError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    function = loss_function(loss_fn)
    names = tensor_names(model, function)
    refuse_hooks(model, names)
    trained = trained_parameters(optimizer, names)
    where = device_of(names, device)
    if example is not None:
        if B is not None or D is not None:
            raise TraceError("give the shapes once: either example=, or B= and D=")
        specs = batch_specs(example, where)
    else:
        specs = specs_of_sizes(model, loss_fn, B, D, dtype, where, caller)
    exported = export(model, function, specs, caller)
    check_loss(exported, function)
    importer, module = import_step(exported, specs, names, trained, name)
    arguments = importer.bound
    if optimizer is not None:
        parameters = {binding.tensor: binding.name for binding in arguments if binding.role == "param"}
        if not parameters:
            raise trace_error("no parameter that the optimizer trains is read by the step", caller)
        for function_op in module.ops:
            function_op.attributes["aicf.optimizer"] = describe(optimizer, parameters)
    return Traced(
        module,
        {
            b.name: b.tensor
            for b in arguments
            if isinstance(b.tensor, torch.nn.Parameter) and b.role == "param"
        },
        {b.name: b.tensor for b in arguments if b.role == "buffer"},
        specs,
    )


def tensor_names(model: torch.nn.Module, function: Callable[..., Any]) -> dict[torch.Tensor, str]:
    """Every parameter and buffer of the model by its first name; those of a loss that is a module as `loss_fn.NAME`."""
    names: dict[torch.Tensor, str] = {}
    modules = [("", model)] + ([("loss_fn.", function)] if isinstance(function, torch.nn.Module) else [])
    for prefix, module in modules:
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            names.setdefault(tensor, prefix + name)
    return names


def device_of(names: Mapping[torch.Tensor, str], wanted: str | torch.device | None) -> torch.device:
    """The one device of the model's tensors; `wanted` for a model without any."""
    devices = {tensor.device: name for tensor, name in names.items()}
    if len(devices) > 1:
        places = ", ".join(f"{name!r} on {device}" for device, name in devices.items())
        raise TraceError(f"the model lies on several devices ({places}); move it to one with model.to(...)")
    if not devices:
        return torch.device(wanted or "cpu")
    return next(iter(devices))


def refuse_hooks(model: torch.nn.Module, names: Mapping[torch.Tensor, str]) -> None:
    """Raise TraceError for hooks on gradients: a compiled step would not run them."""
    for path, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise TraceError(
                f"module {path!r} has backward hooks, which a compiled step does not run; remove them"
            )
    for tensor, name in names.items():
        if tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None):
            raise TraceError(f"{name!r} has gradient hooks, which a compiled step does not run; remove them")


def specs_of_sizes(
    model: torch.nn.Module,
    loss_fn: object,
    B: int | None,
    D: int | None,
    dtype: torch.dtype,
    device: torch.device,
    caller: SourceLocation | None,
) -> dict[str, TensorSpec]:
    """The batch that B and D stand for: "x" of [B, D], and "t" like what the model makes of it."""
    if B is None or D is None:
        raise TraceError(
            'pass example={"x": ..., "t": ...}, or both B= (batch size) and D= (features of "x")'
        )
    if B < 1 or D < 1:
        raise TraceError(f"B and D must be at least 1, got B={B}, D={D}")
    x = {"x": TensorSpec((B, D), dtype, device)}
    output = export(model, lambda model, batch: model(batch["x"]), x, caller).result.meta["val"]
    return {**x, "t": target_spec(loss_fn, TensorSpec(tuple(output.shape), output.dtype, device))}


def check_loss(exported: ExportedStep, function: Callable[..., Any]) -> None:
    """Raise TraceError unless the step returns a 0-d float tensor."""
    loss: torch.Tensor = exported.result.meta["val"]
    if loss.dim() or not loss.is_floating_point():
        hint = "; reduce it with .mean() or .sum()" if loss.dim() else ""
        raise trace_error(
            f"the loss must be a 0-d float tensor, got {describe_tensor(loss)}{hint}",
            function_location(function) or exported.location(exported.result),
        )


def import_step(
    exported: ExportedStep,
    specs: Mapping[str, TensorSpec],
    names: Mapping[torch.Tensor, str],
    trained: set[torch.Tensor],
    name: str,
) -> tuple[Importer, ModuleOp]:
    """The module of the step; an op that nn lacks is decomposed by torch's rule for it, alone, and tried again."""
    refused: list[UnsupportedNode] = []
    while True:
        importer = Importer(exported, bind(exported, names, trained), specs, name)
        try:
            return importer, importer.run()
        except UnsupportedNode as unsupported:
            refused.append(unsupported)
            target = unsupported.node.target
            decompositions = default_decompositions() if unsupported.may_decompose else {}
            if target not in decompositions or target in {before.node.target for before in refused[:-1]}:
                raise explain(refused) from None
            exported = exported.decomposed(target, decompositions[target])


def explain(refused: list[UnsupportedNode]) -> TraceError:
    """The error for the last refused op, told of the op that the user wrote if that one was decomposed into it."""
    last = refused[-1]
    written = next(node for node in refused if node.location == last.location)
    if written is last or written.reason:
        return written.error()
    return written.error(f"torch decomposes it into {last.what}, which is not supported either")
