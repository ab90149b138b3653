"""AICF: a training compiler for PyTorch models. See `aicf_mlir.stages` for the pipeline.

Importing this package needs neither torch nor NumPy: what does is loaded on first use, so that `aicf-opt` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aicf_mlir.host import main_interpreter as main_interpreter  # before anything is loaded
from aicf_mlir.host import tool_process

try:
    tool_process.begin()
    from aicf_mlir import _C as _C
except ImportError as error:
    raise ImportError(
        f"the compiled module aicf_mlir._C cannot be loaded ({error}); run `make build`"
    ) from error

from aicf_mlir.errors import (
    AicfError,
    BindError,
    CaptureError,
    CheckpointError,
    DataError,
    GuardError,
    KernelError,
    LockError,
    LoweringError,
    NonFiniteError,
    OutOfRangeError,
    PlanError,
    SelectionError,
    SettingError,
    StateError,
    TraceError,
    UncomparedError,
    VerifyError,
)
from aicf_mlir.host.garbage import collector_off
from aicf_mlir.machine import environment
from aicf_mlir.machine.cpu_kernels import load_cpu_kernels
from aicf_mlir.machine.libraries import folders_of_libraries
from aicf_mlir.op_call import OpKind, op_call

if TYPE_CHECKING:
    from aicf_mlir import nn, optim
    from aicf_mlir.frontend import trace
    from aicf_mlir.frontend.surveying import Survey, survey
    from aicf_mlir.loop.progress import progress
    from aicf_mlir.runtime.devices import default_device
    from aicf_mlir.step.compile import compile_eval_step, compile_train_step
    from aicf_mlir.step.compile_body import compile_step, train_step
    from aicf_mlir.step.compiled_step import CompiledTrainStep
    from aicf_mlir.step.eager import Comparison
    from aicf_mlir.step.eval_step import CompiledEvalStep
    from aicf_mlir.step.loop_step import CompiledLoopStep
    from aicf_mlir.step.options.clipping import ClipGradNorm
    from aicf_mlir.step.options.loss_scaling import LossScale

__version__ = "0.1.0"
__all__ = [
    "AicfError",
    "BindError",
    "CaptureError",
    "CheckpointError",
    "ClipGradNorm",
    "Comparison",
    "CompiledEvalStep",
    "CompiledLoopStep",
    "CompiledTrainStep",
    "DataError",
    "GuardError",
    "KernelError",
    "LockError",
    "LossScale",
    "LoweringError",
    "NonFiniteError",
    "OpKind",
    "OutOfRangeError",
    "PlanError",
    "SelectionError",
    "SettingError",
    "StateError",
    "Survey",
    "TraceError",
    "UncomparedError",
    "VerifyError",
    "compile_eval_step",
    "compile_step",
    "compile_train_step",
    "default_device",
    "nn",
    "op_call",
    "optim",
    "progress",
    "survey",
    "trace",
    "train_step",
]

# Names that need torch, and the module each comes from; an empty name is the module itself.
_LAZY = {
    "nn": ("aicf_mlir.nn", ""),
    "optim": ("aicf_mlir.optim", ""),
    "ClipGradNorm": ("aicf_mlir.step.options.clipping", "ClipGradNorm"),
    "LossScale": ("aicf_mlir.step.options.loss_scaling", "LossScale"),
    "compile_eval_step": ("aicf_mlir.step.compile", "compile_eval_step"),
    "compile_step": ("aicf_mlir.step.compile_body", "compile_step"),
    "compile_train_step": ("aicf_mlir.step.compile", "compile_train_step"),
    "default_device": ("aicf_mlir.runtime.devices", "default_device"),
    "CompiledLoopStep": ("aicf_mlir.step.loop_step", "CompiledLoopStep"),
    "CompiledEvalStep": ("aicf_mlir.step.eval_step", "CompiledEvalStep"),
    "CompiledTrainStep": ("aicf_mlir.step.compiled_step", "CompiledTrainStep"),
    "Comparison": ("aicf_mlir.step.eager", "Comparison"),
    "progress": ("aicf_mlir.loop.progress", "progress"),
    "Survey": ("aicf_mlir.frontend.surveying", "Survey"),
    "survey": ("aicf_mlir.frontend.surveying", "survey"),
    "trace": ("aicf_mlir.frontend", "trace"),
    "train_step": ("aicf_mlir.step.compile_body", "train_step"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'aicf_mlir' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    with collector_off():  # torch.export makes half a million objects: scanning them takes half a second
        module = import_module(module_name)
    return getattr(module, attribute) if attribute else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


try:
    environment.check()
    load_cpu_kernels()
    _C.find_libraries_in(folders_of_libraries())
except SettingError as error:
    tool_process.refuse(error)
    raise
