"""From a PyTorch model, loss and optimizer to a `CompiledTrainStep`: trace, lower, plan, bind."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir import _C
from aicf_mlir.dialects.optimizer_groups import OPTIMIZER, Adam, Group, parse_groups
from aicf_mlir.errors import BindError
from aicf_mlir.frontend import LossFunction, Traced, trace
from aicf_mlir.garbage import cycles_collected
from aicf_mlir.runtime.bound_plan import BoundPlan
from aicf_mlir.runtime.hyperparameters import Hyperparameters, slot_name
from aicf_mlir.runtime.optimizer_state import BoundGroup, OptimizerState
from aicf_mlir.runtime.program import load_program
from aicf_mlir.runtime.store import Store
from aicf_mlir.stages import Snapshots, make_context, run_stages
from aicf_mlir.train_step import Batch, CompiledTrainStep

log = logging.getLogger("aicf")


def default_device() -> str:
    """The device of a step that names none: "cuda" where torch and this build can use it, else "cpu"."""
    return "cuda" if torch.cuda.is_available() and _C.device_count("cuda") > 0 else "cpu"


def compile_train_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    loss_fn: LossFunction | None = None,
    example: Batch | Sequence[Batch] | None = None,
    B: int | Sequence[int] | None = None,
    D: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    warmup_inputs: Batch | Sequence[Batch] | None = None,
    warmup_runs: int = 1,
    warmup_required: bool = True,
    name: str = "step",
    keep_gradients: bool = False,
) -> CompiledTrainStep:
    """Compile the whole train step of `model` under `optimizer`.

    `loss_fn(model, batch)` returns a 0-d loss; the default is the mean squared error of `model(batch["x"])` against `batch["t"]`.
    The shapes come from `example` (a batch, or one per shape group), or from `B` (one batch size or several) and `D` (features of
    "x"; "t" has the shape of the model's output). Parameters become views into memory of their own on `device` (default: CUDA
    where usable, else the CPU) and keep their values; the model and the optimizer stay ordinary torch objects.
    `warmup_inputs` warms up at once, `warmup_runs` times each. `keep_gradients` keeps every gradient readable after a step.

    Raises TraceError for what cannot be expressed, SelectionError when a kernel is missing for the device, BindError for tensors
    that do not fit.
    """
    where = _device(device)
    _check_dtype(model, dtype)
    with cycles_collected():
        traces = [
            trace(
                model,
                loss_fn,
                batch,
                optimizer=optimizer,
                name=name,
                B=size,
                D=D,
                dtype=dtype or _dtype(model),
            )
            for batch, size in _shape_groups(example, B)
        ]
    target = "cpu" if where.type == "cpu" else f"sm_{_C.compute_capability(where.index)}"
    stages = [_run_pipeline(traced, target, keep_gradients) for traced in traces]
    programs = [load_program(snapshots["plan"]) for snapshots in stages]

    if (previous := vars(optimizer).get("_aicf_step", _no_step)()) is not None:
        previous.detach()
    log.info("%s: compiled %d shape group(s) for %s", name, len(programs), target)
    tensors = {("param", n): p for n, p in traces[0].parameters.items()}
    frozen = {("buffer", n): b for n, b in traces[0].buffers.items()}
    store = Store(programs[0], str(where), model, {**tensors, **frozen})
    plans = [BoundPlan(program, store) for program in programs]
    groups = _optimizer_groups(stages[0]["step"])
    hyperparameters = Hyperparameters(optimizer, groups, store, where)
    optimizer_state = OptimizerState(
        optimizer,
        [_bind_group(k, group, traces[0].parameters, store) for k, group in enumerate(groups)],
        on_adopt=hyperparameters.follow_steps,
    )
    step = CompiledTrainStep(
        name, store, plans, stages, hyperparameters, optimizer, optimizer_state, warmup_required
    )
    vars(optimizer)["_aicf_step"] = weakref.ref(
        step
    )  # else a dropped step would wait for the cyclic collector
    for batch in _batches(warmup_inputs):
        step.warmup(batch, warmup_runs)
    return step


def _no_step() -> None:
    """What an optimizer that no step has taken over refers to."""


def _run_pipeline(traced: Traced, target: str, keep_gradients: bool) -> Snapshots:
    stages = Snapshots()
    options = {"apply-optimizer": "keep-grads"} if keep_gradients else {}
    run_stages(traced.module, make_context(), target=target, after_each=stages, options=options)
    return stages


def _device(device: str | torch.device | None) -> torch.device:
    wanted = str(device) if device is not None else default_device()
    if wanted.partition(":")[0] not in ("cpu", "cuda"):
        raise BindError(f"device {wanted!r}: AICF runs on 'cpu' and 'cuda'")
    try:
        where = torch.device(wanted)
    except RuntimeError as error:
        raise BindError(f"device {wanted!r}: {error}") from None
    if where.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or _C.device_count("cuda") == 0:
        why = "this build of AICF has no CUDA" if not _C.with_cuda else "no usable GPU was found"
        raise BindError(f"device {str(where)!r}: {why}; use device='cpu'")
    index = where.index if ":" in wanted else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise BindError(f"device {wanted!r}: this machine has {torch.cuda.device_count()} GPU(s)")
    return torch.device("cuda", index)


def _dtype(model: torch.nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _check_dtype(model: torch.nn.Module, dtype: torch.dtype | None) -> None:
    for name, parameter in model.named_parameters():
        if dtype is not None and parameter.is_floating_point() and parameter.dtype != dtype:
            raise BindError(
                f"dtype={dtype}, but parameter {name!r} is {parameter.dtype}; call model.to({dtype}) first, or drop dtype="
            )


def _shape_groups(
    example: Batch | Sequence[Batch] | None, B: int | Sequence[int] | None
) -> list[tuple[Batch | None, int | None]]:
    if example is not None:
        if B is not None:
            raise BindError("give the shapes once: either example= or B= and D=")
        batches = _batches(example)
        if not batches:
            raise BindError("example= is an empty list; give at least one batch")
        return [(batch, None) for batch in batches]
    if isinstance(B, Sequence):
        if not B:
            raise BindError("B= is an empty list; give at least one batch size")
        return [(None, size) for size in B]
    return [(None, B)]


def _batches(given: Batch | Sequence[Batch] | None) -> list[Batch]:
    if given is None:
        return []
    return [given] if isinstance(given, Mapping) else list(given)


def _optimizer_groups(module: ModuleOp) -> list[Group]:
    """The param groups as the compiled step has them: only parameters that are trained."""
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    return parse_groups(function.attributes[OPTIMIZER])


def _bind_group(
    index: int, group: Group, parameters: Mapping[str, torch.nn.Parameter], store: Store
) -> BoundGroup:
    steps = slot_name("step", index)
    return BoundGroup(
        index=index,
        parameters=[(name, parameters[name]) for name in group.params],
        states=[
            {key: store.view("state", f"{name}.{key}") for key in group.rule.states} for name in group.params
        ],
        steps=store.view("state", steps) if steps in store.of_role("state") else None,
        counts_in_state=isinstance(group.rule, Adam),
    )
