"""Compilation of a PyTorch model, loss and optimizer to a `CompiledTrainStep`, or without an optimizer to a
`CompiledEvalStep`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh

from aicf_mlir.frontend import LossFunction, source
from aicf_mlir.frontend.precision import PrecisionName
from aicf_mlir.frontend.structure import Batch
from aicf_mlir.frontend.tracing import refuse_surroundings
from aicf_mlir.host.garbage import cycles_collected
from aicf_mlir.passes.pipeline import available_passes
from aicf_mlir.runtime.eager_steps import belongs_to
from aicf_mlir.runtime.micro_batches import StepBatch
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.step.data_parallel import DataParallelStep
from aicf_mlir.step.eval_step import CompiledEvalStep
from aicf_mlir.step.options.clipping import ClipGradNorm
from aicf_mlir.step.options.loss_scaling import LossScale
from aicf_mlir.step.options.mesh import DataParallel, mesh_of
from aicf_mlir.step.options.table import documented
from aicf_mlir.step.request import Request

for _load in available_passes().values():
    _load()  # a compilation needs nearly all of them: they load with the compiler, and not with the first step


@documented("train")
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
    warmup_inputs: StepBatch | Sequence[StepBatch] | None = None,
    warmup_runs: int = 1,
    warmup_required: bool = True,
    name: str = "step",
    keep_gradients: bool = False,
    meta: Sequence[str] = (),
    check_finite: bool = False,
    seed: int | None = None,
    further_sizes: int = 0,
    clip_grad_norm: float | Sequence[float] | ClipGradNorm | None = None,
    clip_grad_value: float | None = None,
    accumulate: int | None = None,
    accumulate_apart: bool = False,
    metrics: Mapping[str, str] | None = None,
    precision: PrecisionName | None = None,
    loss_scale: Literal["auto", "dynamic"] | float | LossScale | None = "auto",
    ema: float | None = None,
    plan: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    mesh: DeviceMesh | ProcessGroup | None = None,
    zero: int = 0,
) -> CompiledTrainStep:
    """Compile the whole train step of `model` under `optimizer`: forward, loss, backward, update.

    The shapes come from `example`, or from `B` and `D`. `docs/option_table.md` describes every option, and so does `help`.

    A class index out of range skips the whole step and raises OutOfRangeError. Steps over the same model or optimizer share
    parameters and state: each sees the others' updates, and they run one at a time.

    Raises TraceError for code that cannot be expressed, SelectionError when a kernel is missing for the device, and
    BindError for tensors that do not fit. Raises VerifyError with file, line and column for a plan that breaks a rule.
    """
    arguments, here = locals(), source.here()
    arguments["mesh"] = mesh_of(model, mesh)
    ranks = DataParallel.of(arguments).ranks

    def requested() -> Request:
        refuse_surroundings(here)
        return Request.of("train", model, (optimizer,), arguments)

    with cycles_collected():
        if ranks is None:
            request = requested()
            step = CompiledTrainStep(request, request.build())
        else:
            step, request = DataParallelStep.compiled(ranks, name, requested)
    belongs_to(optimizer, step)
    for effect in request.effects.values():
        effect.begin(step)
    return step


@documented("eval")
def compile_eval_step(
    model: torch.nn.Module,
    *,
    loss_fn: LossFunction | None = None,
    example: Batch | Sequence[Batch] | None = None,
    B: int | Sequence[int] | None = None,
    D: int | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    name: str = "eval",
    keep_gradients: bool = False,
    meta: Sequence[str] = (),
    seed: int | None = None,
    further_sizes: int = 0,
    metrics: Mapping[str, str] | None = None,
    precision: PrecisionName | None = None,
    plan: str | os.PathLike[str] | None = None,
    lock: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
) -> CompiledEvalStep:
    """Compile the loss of `model` alone: the step computes it and trains nothing. With `keep_gradients=True` it leaves the
    gradients as `p.grad`, for an optimizer that asks for the loss several times in a step, such as LBFGS.

    The options have the same meaning as for `compile_train_step`. The model's mode counts: call `model.eval()` first,
    and before each call.
    """
    arguments = locals()
    refuse_surroundings(source.here())
    request = Request.of("eval", model, (), arguments)
    with cycles_collected():
        return CompiledEvalStep(request, request.build())
