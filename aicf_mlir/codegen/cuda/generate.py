"""CUDA C++ from a kernel, by its kind and schedule."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import columns, gemm_maps, maps, rows, split_rows
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.kernel import Code, Kernel


def generate(kernel: Kernel) -> Code:
    """The text of a kernel and its launches; the same for the same kernel, always."""
    code = _code(kernel)
    return Code(with_pieces(code.source), code.phases, code.workspace)


def _code(kernel: Kernel) -> Code:
    match kernel.kind:
        case "map":
            return maps.code(kernel)
        case "gemm_map":
            return gemm_maps.code(kernel)
        case "colwise":
            return columns.code(kernel)
        case _:
            plan = rows.schedule(kernel)
            return (
                split_rows.code(kernel, plan)
                if split_rows.parts(kernel, plan) > 1
                else rows.code(kernel, plan)
            )


def workspace(kernel: Kernel) -> int:
    """`generate(kernel).workspace` without the text."""
    match kernel.kind:
        case "colwise":
            return columns.workspace(kernel)
        case "rowwise":
            return split_rows.workspace(kernel)
        case _:
            return 0
