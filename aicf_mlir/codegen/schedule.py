"""The generator of a target, and the schedules that it has for a kernel."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Code, Kernel


def _generator(target: str) -> Any:
    """The module that prints code for `target`."""
    return importlib.import_module(f"aicf_mlir.codegen.{'llvm' if target == 'cpu' else 'cuda'}")


def _schedules(target: str) -> Any:
    """The module that has the schedules of `target`."""
    return importlib.import_module(f"{_generator(target).__name__}.schedules")


def generate(kernel: Kernel) -> Code:
    """The text of `kernel`, and how it is launched."""
    return _generator(kernel.target).generate(kernel)


def reason(kernel: Kernel) -> str:
    """The reason why a target has no code for a kernel that verifies; "" if it has: only a chain may ask for too much."""
    if is_cpu(kernel.target) or not isinstance(kernel, BackToBackKernel):
        return ""
    from aicf_mlir.codegen.cuda import back_to_back  # none of it is needed to read a module

    return back_to_back.reason(kernel)


def scheduled(kernel: Kernel, text: str = "") -> Kernel:
    """The kernel with its schedule as text: `text`, or the one that the target chooses. Without one where there is no choice.

    Raises SelectionError for a text that the kernel cannot have.
    """
    found = replace(kernel, schedule=text)
    own = _schedules(kernel.target).text_of(found)
    if text not in ("", own):
        expected = f"{own!r}" if own else f"none, a {kernel.kind} has no schedule of its own"
        raise SelectionError(f"schedule {text!r}: expected {expected}")
    return replace(kernel, schedule=own)


def candidates(kernel: Kernel) -> list[Kernel]:
    """The kernel with each schedule that is worth measuring, the chosen one first; itself where there is no choice."""
    return [replace(kernel, schedule=text) for text in _schedules(kernel.target).candidates(kernel)] or [
        kernel
    ]


def workspace(kernel: Kernel) -> int:
    """Bytes of scratch memory that `kernel` needs."""
    return _generator(kernel.target).workspace(kernel)
