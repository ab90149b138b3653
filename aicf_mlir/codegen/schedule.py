"""The generator of a target, and the schedules that it has for a kernel."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.column_sums import has_column_sums
from aicf_mlir.kernels.kernel import Code, Kernel
from aicf_mlir.kernels.schedule_text import Schedules


def _generator(target: str) -> Any:
    """The module that prints code for `target`."""
    return importlib.import_module(f"aicf_mlir.codegen.{'llvm' if target == 'cpu' else 'cuda'}")


def _schedules(kernel: Kernel) -> Schedules | None:
    """The schedules of kernels of this kind on their target; None where there is one alone."""
    forms = importlib.import_module(f"{_generator(kernel.target).__name__}.schedules").FORMS
    return None if has_column_sums(kernel) else forms.get(kernel.kind)


def generate(kernel: Kernel) -> Code:
    """The text of `kernel`, and how it is launched."""
    return _generator(kernel.target).generate(kernel)


def reason(kernel: Kernel) -> str:
    """The reason why a chain has no code of one launch on a target, but of one for each part; "" for any other kernel."""
    if is_cpu(kernel.target) or not isinstance(kernel, BackToBackKernel):
        return ""
    from aicf_mlir.codegen.cuda import back_to_back  # none of it is needed to read a module

    return back_to_back.reason(kernel)


def scheduled(kernel: Kernel, text: str = "") -> Kernel:
    """The kernel with its schedule as text: `text`, or the one that the target chooses. Without one where there is no choice.

    Raises SelectionError for a text that the kernel cannot have.
    """
    schedules = _schedules(kernel)
    own = schedules.text_of(replace(kernel, schedule=text)) if schedules else ""
    if text not in ("", own):
        expected = f"{own!r}" if own else f"none, a {kernel.kind} has no schedule of its own"
        raise SelectionError(f"schedule {text!r}: expected {expected}")
    return replace(kernel, schedule=own)


def candidates(kernel: Kernel) -> list[Kernel]:
    """The kernel with each schedule that is worth measuring, the chosen one first; itself where there is no choice."""
    if (schedules := _schedules(kernel)) is None:
        return [kernel]
    return [replace(kernel, schedule=text) for text in schedules.candidates(kernel)]


def workspace(kernel: Kernel) -> int:
    """Bytes of scratch memory that `kernel` needs."""
    return _generator(kernel.target).workspace(kernel)
