"""Kernels for the CPU as LLVM IR text.

A kernel is one or two functions `void f(ptr operands, i64 begin, i64 end)`, a phase each. `operands` is an array of
addresses: the operands in the order of the body (those of a product before them), the results, the workspace, and the
table of functions `CALLED`.
"""

from __future__ import annotations

from collections.abc import Callable

from aicf_mlir.codegen.kernel import Code, Kernel, Phase
from aicf_mlir.codegen.llvm.columns import column_phases, column_workspace
from aicf_mlir.codegen.llvm.maps import map_phases
from aicf_mlir.codegen.llvm.products import product_module, product_phases, product_workspace
from aicf_mlir.codegen.llvm.rows import row_phases, row_workspace
from aicf_mlir.codegen.llvm.split import split_of, split_phases, split_workspace
from aicf_mlir.codegen.llvm.text import Function, module

__all__ = ["generate", "workspace"]

Schedule = Callable[[Kernel], list[tuple[Phase, Function]]]


def _row_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    split = split_of(kernel)
    return row_phases(kernel) if split is None else split_phases(kernel, split)


def _row_workspace(kernel: Kernel) -> int:
    split = split_of(kernel)
    return row_workspace(kernel) if split is None else split_workspace(kernel, split)


def _no_workspace(kernel: Kernel) -> int:
    del kernel
    return 0


SCHEDULES: dict[str, Schedule] = {"map": map_phases, "rowwise": _row_phases, "colwise": column_phases}
WORKSPACE: dict[str, Callable[[Kernel], int]] = {
    "map": _no_workspace,
    "gemm_map": product_workspace,
    "rowwise": _row_workspace,
    "colwise": column_workspace,
}
"""By kind of kernel."""


def _arguments(kernel: Kernel) -> list[str]:
    """The parameters of the inner functions; what may be in place is not promised to be apart."""
    operands = len(kernel.operands) + (kernel.product is not None)
    shared = {n for result, operand in kernel.launch_in_place for n in (operands + result, operand)}
    return [
        *(f"ptr {'' if n in shared else 'noalias '}%a{n}" for n in range(operands + len(kernel.results))),
        "ptr noalias %workspace",
        "ptr noalias readonly %libm",
    ]


def generate(kernel: Kernel) -> Code:
    """The code of a kernel that verifies: the same text for the same kernel."""
    if kernel.product is not None:
        text = product_module(kernel, _arguments(kernel))
        return Code(text, tuple(product_phases(kernel)), workspace(kernel))
    parts = SCHEDULES[kernel.kind](kernel)
    text = module(kernel.id, [(phase.function, function) for phase, function in parts], _arguments(kernel))
    return Code(text, tuple(phase for phase, _ in parts), workspace(kernel))


def workspace(kernel: Kernel) -> int:
    """Bytes that the code of a kernel needs beside its operands and results, aligned to 256."""
    return -(-WORKSPACE[kernel.kind](kernel) // 256) * 256
