"""The generator of a target."""

from __future__ import annotations

import importlib
from typing import Any

from aicf_mlir.ir.registry import is_cpu
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.kernel import Code, Kernel


def _generator(target: str) -> Any:
    """The module that prints code for `target`."""
    return importlib.import_module(f"aicf_mlir.codegen.{'llvm' if target == 'cpu' else 'cuda'}")


def generate(kernel: Kernel) -> Code:
    """The text of `kernel`, and how it is launched."""
    return _generator(kernel.target).generate(kernel)


def reason(kernel: Kernel) -> str:
    """The reason why a target has no code for a kernel that verifies; "" if it has: only a chain may ask for too much."""
    if is_cpu(kernel.target) or not isinstance(kernel, BackToBackKernel):
        return ""
    from aicf_mlir.codegen.cuda import back_to_back  # none of it is needed to read a module

    return back_to_back.reason(kernel)


def workspace(kernel: Kernel) -> int:
    """Bytes of scratch memory that `kernel` needs."""
    return _generator(kernel.target).workspace(kernel)
