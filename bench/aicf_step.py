"""AICF's step of a workload, captured."""

from __future__ import annotations

import inspect
import sys
import tempfile
from pathlib import Path

import torch
from workloads import AUTOCAST, Batch, Workload

from aicf_mlir import AicfError, compile_train_step
from aicf_mlir.step.compiled_step import CompiledTrainStep
from aicf_mlir.tools import aicf_tune


def tuned_step(workload: Workload, batch: Batch, device: str) -> tuple[CompiledTrainStep, str]:
    """`captured_step` by the kernels that `aicf-tune` finds fastest here for its plan."""
    step, _ = captured_step(workload, batch, device)
    with tempfile.TemporaryDirectory() as folder:
        plan, lock = Path(folder) / "plan.mlir", Path(folder) / "aicf.lock"
        plan.write_text(step.ir("plan"))
        del step
        if aicf_tune.main([str(plan), "-o", str(lock)]):
            raise RuntimeError("aicf-tune failed")
        return captured_step(workload, batch, device, lock=lock)


def captured_step(
    workload: Workload, batch: Batch, device: str, **given: object
) -> tuple[CompiledTrainStep, str]:
    """The step, from the first weights; and what it does otherwise than asked, empty where nothing.

    It is asked for the precision of the workload. Where AICF has no such precision, the loss has an autocast in it, as the
    peers' has, and tf32 is computed in f32.
    """
    asked = {} if workload.precision == "f32" else {"precision": workload.precision, "loss_scale": None}
    if not asked or "precision" in inspect.signature(compile_train_step).parameters:
        try:
            return compiled(workload, batch, device, workload.plain_loss_of, {**asked, **given}), ""
        except AicfError as error:
            if not asked:
                raise
            print(f"{workload.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    note = "autocast in the loss" if workload.precision in AUTOCAST else "computed in f32"
    return compiled(workload, batch, device, workload.loss_of, given), note


def compiled(
    workload: Workload, batch: Batch, device: str, loss_of: object, options: dict[str, object]
) -> CompiledTrainStep:
    """Warmed up and captured; neither changes a weight. The device has the batch where the step reads it, and nowhere else."""
    torch.manual_seed(0)
    model = workload.model().to(device)
    step = compile_train_step(
        model,
        workload.torch_optimizer(model),
        device=device,
        example=batch,
        loss_fn=loss_of,
        name="bench",
        **options,
    )
    there = step.inputs
    for name, tensor in there.items():
        tensor.copy_(batch[name])
    step.warmup(there)
    step.capture(there)
    return step
