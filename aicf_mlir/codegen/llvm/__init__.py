"""Kernels for the CPU as LLVM IR text.

A kernel is some functions `void f(ptr operands, i64 begin, i64 end)`, a phase each. `operands` is an array of
addresses: the operands in the order of the body (those of a product before them), the results, the workspace, and the
table of functions `CALLED`.
"""

from __future__ import annotations

from collections.abc import Callable

from aicf_mlir.codegen.chain_parts import chain_workspace
from aicf_mlir.codegen.llvm.chains import chain_code
from aicf_mlir.codegen.llvm.columns import column_phases, column_workspace
from aicf_mlir.codegen.llvm.maps import map_phases
from aicf_mlir.codegen.llvm.products import product_module, product_phases, product_workspace
from aicf_mlir.codegen.llvm.row_forms import phases_of, workspace_of
from aicf_mlir.codegen.llvm.rows_and_columns import walk_phases, walk_workspace, walks_together
from aicf_mlir.codegen.llvm.segment_rows import row_each_module, row_each_phases, row_each_workspace
from aicf_mlir.codegen.llvm.segments import each_module, each_phases
from aicf_mlir.codegen.llvm.text import Function, module
from aicf_mlir.errors import SelectionError
from aicf_mlir.kernels.back_to_back import BackToBackKernel
from aicf_mlir.kernels.column_sums import apart, has_column_sums
from aicf_mlir.kernels.horizontal import HorizontalKernel
from aicf_mlir.kernels.kernel import Code, Kernel, Phase
from aicf_mlir.kernels.segments import EachKernel, RowEachKernel
from aicf_mlir.kernels.turned import turned

__all__ = ["generate", "workspace"]

Schedule = Callable[[Kernel], list[tuple[Phase, Function]]]


def _row_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    if has_column_sums(kernel):
        return _column_sum_phases(kernel)
    return phases_of(kernel)


def _column_sum_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    """The phases in one walk, or the sums and then the rows; each part finds the workspace free, and has names of its own."""
    if walks_together(kernel):
        found = walk_phases(kernel)
    else:
        found = [(part, *one) for part in apart(kernel) for one in SCHEDULES[part.kind](part)]
    for part, _, function in found:
        function.parameters = _arguments(part)
    return [(phase, function) for _, phase, function in found]


def _row_workspace(kernel: Kernel) -> int:
    if has_column_sums(kernel):
        if walks_together(kernel):
            return walk_workspace(kernel)
        return max(WORKSPACE[part.kind](part) for part in apart(kernel))
    return workspace_of(kernel)


def _chain_workspace(kernel: Kernel) -> int:
    assert isinstance(kernel, BackToBackKernel)
    return chain_workspace(kernel, workspace)


def _no_workspace(kernel: Kernel) -> int:
    del kernel
    return 0


def _column_phases(kernel: Kernel) -> list[tuple[Phase, Function]]:
    return _row_phases(turned(kernel)) if kernel.goes_on else column_phases(kernel)


def _column_workspace(kernel: Kernel) -> int:
    return _row_workspace(turned(kernel)) if kernel.goes_on else column_workspace(kernel)


SCHEDULES: dict[str, Schedule] = {"map": map_phases, "rowwise": _row_phases, "colwise": _column_phases}
WORKSPACE: dict[str, Callable[[Kernel], int]] = {
    "map": _no_workspace,
    "multi_tensor_map": _no_workspace,
    "multi_tensor_rowwise": row_each_workspace,
    "gemm_map": product_workspace,
    "back_to_back": _chain_workspace,
    "rowwise": _row_workspace,
    "colwise": _column_workspace,
}
"""The workspace function for each kind of kernel."""


def _arguments(kernel: Kernel) -> list[str]:
    """The parameters of the inner functions; only those that cannot be in place are marked as separate memory."""
    operands = len(kernel.operands) + (kernel.product is not None)  # a and b stand for the first operand
    shared = {n for result, operand in kernel.launch_in_place for n in (operands + result, operand)}
    named = [f"ptr {'' if n in shared else 'noalias '}%a{n}" for n in range(operands + len(kernel.results))]
    order = kernel.launch_tensors if kernel.product is None else range(len(named))
    return [
        *(f"ptr %other{n}" if own is None else named[own] for n, own in enumerate(order)),
        "ptr noalias %workspace",
        "ptr noalias readonly %libm",
    ]


def generate(kernel: Kernel) -> Code:
    """The code of a kernel that verifies: the same text for the same kernel."""
    _refuse_horizontally(kernel)
    if isinstance(kernel, BackToBackKernel):
        return chain_code(kernel, generate, workspace(kernel))
    if kernel.product is not None:
        text = product_module(kernel, _arguments(kernel))
        return Code(text, tuple(product_phases(kernel)), workspace(kernel))
    if isinstance(kernel, EachKernel):
        return Code(each_module(kernel), tuple(each_phases(kernel)))
    if isinstance(kernel, RowEachKernel):
        return Code(row_each_module(kernel), tuple(row_each_phases(kernel)), workspace(kernel))
    parts = SCHEDULES[kernel.kind](kernel)
    text = module(
        kernel.symbol, [(phase.function, function) for phase, function in parts], _arguments(kernel)
    )
    return Code(text, tuple(phase for phase, _ in parts), workspace(kernel))


def workspace(kernel: Kernel) -> int:
    """The bytes that the code of a kernel needs in addition to its operands and results, aligned to 256."""
    _refuse_horizontally(kernel)
    return -(-WORKSPACE[kernel.kind](kernel) // 256) * 256


def _refuse_horizontally(kernel: Kernel) -> None:
    """Refuse horizontal fusion: a launch is a call here, and there is nothing to gain."""
    if isinstance(kernel, HorizontalKernel):
        raise SelectionError("several launches are one on GPUs alone; on the CPU each is a call by itself")
