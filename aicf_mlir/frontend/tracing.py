"""`trace`: a model, a loss and an optimizer become one function of the nn dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from xdsl.dialects.builtin import ArrayAttr, ModuleOp

from aicf_mlir.dialects.optimizer_groups import OPTIMIZER
from aicf_mlir.errors import AicfError, TraceError
from aicf_mlir.frontend import source
from aicf_mlir.frontend.bindings import bind
from aicf_mlir.frontend.example import (
    LossFunction,
    TensorSpec,
    batch_specs,
    loss_function,
    target_spec,
)
from aicf_mlir.frontend.export import export, result_of
from aicf_mlir.frontend.exported_step import ExportedStep
from aicf_mlir.frontend.importer import Importer
from aicf_mlir.frontend.metrics import Metrics
from aicf_mlir.frontend.model import (
    code_of_hooks,
    device_of,
    dtype_of,
    modules_of,
    refuse_hooks,
    tensor_names,
    unwrapped,
)
from aicf_mlir.frontend.one_at_a_time import one_at_a_time
from aicf_mlir.frontend.optimizer import describe, rule_of, trained_parameters
from aicf_mlir.frontend.patched import refuse_patched
from aicf_mlir.frontend.precision import Precision
from aicf_mlir.frontend.random_state import RandomState
from aicf_mlir.frontend.reached import collect, values_read
from aicf_mlir.frontend.reads import Read, named_modules
from aicf_mlir.frontend.source import trace_error
from aicf_mlir.frontend.structure import Batch, Structure
from aicf_mlir.frontend.torch_state import surrounding
from aicf_mlir.frontend.traced_optimizer import OptimizerTrace, trace_optimizer, with_gradient
from aicf_mlir.frontend.types import describe as describe_tensor
from aicf_mlir.frontend.unsupported import with_decompositions
from aicf_mlir.ir.locations import SourceLocation
from aicf_mlir.ir.printing import to_text
from aicf_mlir.ir.signature import steps


@dataclass(frozen=True)
class Traced:
    """The result of the front end: forward and loss as text, and the user's tensors for its arguments."""

    module: ModuleOp
    """A module of one function; its arguments are the inputs, the trained parameters, then the tensors that are only read."""
    parameters: dict[str, torch.nn.Parameter]
    """The trained parameters that the step reads, by name."""
    buffers: dict[str, torch.Tensor]
    """Frozen parameters, buffers and other tensors that the step reads or updates, by name."""
    inputs: dict[str, TensorSpec]
    """The required form of every batch, by name."""
    structure: Structure
    """The nesting of every batch."""
    reads: list[Read]
    """Every place in the user's Python that the step depends on."""
    written: Sequence[OptimizerTrace] = ()
    """The traces of the optimizers that no rule describes."""

    def __str__(self) -> str:
        return to_text(self.module)

    def followed_by(self, now: Traced) -> Traced:
        """Return this trace with what Python does after a step in `now`, another trace of the same text."""
        del now
        return self


@one_at_a_time
def trace(
    model: torch.nn.Module,
    loss_fn: LossFunction | torch.nn.Module | None = None,
    example: Batch | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    name: str = "step",
    B: int | None = None,
    D: int | None = None,
    dtype: torch.dtype | None = None,
    device: str | torch.device | None = None,
    host_values: Mapping[torch.Tensor, str] | None = None,
    random: RandomState | None = None,
    metrics: Metrics | None = None,
    precision: Precision | None = None,
) -> Traced:
    """Write down forward and loss of one train step of `model`, as a function called `name`.

    `loss_fn(model, batch)` returns a 0-d float tensor; by default it is the mean squared error of `model(batch["x"])`
    against `batch["t"]`, and a torch loss module compares the same two. `example` is a batch; only its nesting, names,
    shapes and dtypes matter. With `B` and `D` instead, "x" is [B, D] of `dtype` (by default the model's) and "t" is
    like the model's output, or for CrossEntropyLoss its class indices. `device` is for a model without tensors; any
    other model determines the device itself. `host_values` names 0-d tensors that replace Python numbers. `random` is
    the source of random numbers, by default a state of its own. `metrics` gathers outputs; model and loss compute in
    `precision`.

    A parameter is trained if it requires a gradient and, if there is an `optimizer`, is in one of its param groups. The
    function then also updates each group. Nothing runs, and nothing of the model changes.

    Raises TraceError, with the user's file and line where there is one.
    """
    caller = source.here()
    refuse_surroundings(caller)
    model = unwrapped(model)
    function = loss_function(loss_fn)
    modules = modules_of(model, function)
    names = {**tensor_names(modules), **(host_values or {})}
    refuse_hooks(modules, names, called_of=(model, function))
    if precision is not None:
        precision.check(names)
    trained = trained_parameters(optimizer, names)
    where = device_of(names, device)
    if example is None:
        specs = specs_of_sizes(model, loss_fn, B, D, dtype or dtype_of(names), where, caller)
        structure = Structure.plain(specs)
    elif B is None and D is None:
        specs, structure = batch_specs(example, where)
    else:
        raise TraceError("give the shapes once: either example=, or B= and D=")

    random_state, gathered = random or RandomState(), metrics or Metrics()
    paths = paths_of(modules, function)
    numbers = list(host_values or ())
    importers: list[Importer] = []

    def build(step: ExportedStep) -> tuple[Importer, ModuleOp]:
        importer = Importer(step, bind(step, names, trained), specs, symbol(name), random_state, gathered)
        importers.append(importer)
        return importer, importer.run()

    def imported(parts: Sequence[torch.nn.Module] = ()) -> tuple[ExportedStep, Importer, ModuleOp]:
        exported = export(
            model,
            function,
            specs,
            caller,
            structure,
            trains=optimizer is not None,
            precision=precision,
            names=paths,
            numbers=numbers,
            hooks=code_of_hooks(modules),
            parts=parts,
        )
        check_loss(exported, function)
        return exported, *with_decompositions(exported, build)

    parts = updated_by(modules, model, function)
    try:
        exported, importer, module = imported()
    except (
        TraceError
    ) as refused:  # their tensors are constants of the step; where it updates them they are parts of it
        if importers or not parts:
            raise
        try:
            exported, importer, module = imported(parts)
        except AicfError:
            raise refused from None
    if precision is not None:
        precision.mark(module)
    parameters = {b.name: b.tensor for b in importer.bound if isinstance(b.tensor, torch.nn.Parameter)}
    parameters = {name: tensor for name, tensor in parameters.items() if tensor in trained}
    buffers = {b.name: b.tensor for b in importer.bound if b.name not in parameters}
    written: list[OptimizerTrace] = []
    if optimizer is not None:
        if not parameters or not importer.loss_has_gradient:
            cut = "; every gradient is cut by detach or no_grad" if parameters else ""
            raise trace_error(f"the loss depends on no parameter that the optimizer trains{cut}", caller)
        read: dict[torch.Tensor, str] = {tensor: name for name, tensor in parameters.items()}
        (step,) = steps(module)
        if rule_of(optimizer) is not None:
            step.attributes[OPTIMIZER] = describe(optimizer, read)
        else:
            traced = trace_optimizer(optimizer, with_gradient(step, read), f"{symbol(name)}_update", where)
            step.attributes[OPTIMIZER] = ArrayAttr([group.to_attribute() for group in traced.groups])
            module.body.block.add_op(traced.function)
            written.append(traced)
    reads = [*collect(exported.places, paths), *values_read(exported, names, paths)]
    reads += [read for traced in written for read in traced.reads]
    structure = replace(structure, needs_dense=exported.needs_dense)
    return Traced(module, parameters, buffers, specs, structure, reads, written)


def updated_by(
    modules: Mapping[str, torch.nn.Module], model: torch.nn.Module, function: Any
) -> list[torch.nn.Module]:
    """Return the modules that the loss function finds in its closure, and of which it may update buffers."""
    behind = (module for module in modules.values() if module is not model and module is not function)
    return [module for module in behind if any(True for _ in module.buffers())]


def paths_of(modules: Mapping[str, torch.nn.Module], function: Any) -> dict[int, str]:
    """Return the names of modules, their submodules and the object of a method, by their ids: the module under "" is
    `model`.
    """
    paths = {id(function.__self__): "self"} if isinstance(function, MethodType) else {id(function): "loss_fn"}
    for path, root in modules.items():
        for name, part in named_modules(root):
            paths.setdefault(id(part), f"{path or 'model'}.{name}".strip("."))
    return paths


def refuse_surroundings(caller: SourceLocation | None) -> None:
    """Raise TraceError under `torch.autocast`, inside a context that a step would not run, and if torch's own methods
    were replaced.
    """
    refuse_patched(caller)
    if (found := surrounding()) is not None:
        row, what = found
        raise trace_error(
            f"the step is compiled inside {row.what} ({what}), which it would not run; compile outside of it",
            caller,
        )
    if any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
        raise trace_error(
            "the step is compiled inside torch.autocast, which it would not follow; compile outside of it, with precision=,"
            " or with a model in the dtype that it is to compute in",
            caller,
        )


def specs_of_sizes(
    model: torch.nn.Module,
    loss_fn: object,
    B: int | None,
    D: int | None,
    dtype: torch.dtype,
    device: torch.device,
    caller: SourceLocation | None,
) -> dict[str, TensorSpec]:
    """Return the batch that B and D stand for: "x" of [B, D], and "t" like the model's output for it."""
    if B is None or D is None:
        raise TraceError(
            'pass example={"x": ..., "t": ...}, or both B= (batch size) and D= (features of "x")'
        )
    if B < 1 or D < 1:
        raise TraceError(f"B and D must be at least 1, got B={B}, D={D}")
    x = {"x": TensorSpec((B, D), dtype, device)}
    output = result_of(model, lambda model, batch: model(batch["x"]), x, caller)
    return {**x, "t": target_spec(loss_fn, TensorSpec(tuple(output.shape), output.dtype, device))}


def check_loss(exported: ExportedStep, function: LossFunction) -> None:
    """Raise TraceError unless the step returns a 0-d float tensor."""
    loss: torch.Tensor = exported.result.meta["val"]
    if loss.dim() or not loss.is_floating_point():
        hint = "; reduce it with .mean() or .sum()" if loss.dim() else ""
        raise trace_error(
            f"the loss must be a 0-d float tensor, got {describe_tensor(loss)}{hint}",
            source.of_function(function) or exported.location(exported.result),
        )


def symbol(name: str) -> str:
    """Return `name` as the name of a function: letters, digits and underscores."""
    legal = re.sub(r"\W", "_", name, flags=re.ASCII) or "step"
    return f"_{legal}" if legal[0].isdigit() else legal
