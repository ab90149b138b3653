"""CUDA C++ from a kernel, by its kind and schedule."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import maps, rows
from aicf_mlir.codegen.cuda.pieces import with_pieces
from aicf_mlir.codegen.kernel import Code, Kernel


def generate(kernel: Kernel) -> Code:
    """The text of a kernel and its launches; the same for the same kernel, always."""
    code = {"map": maps.code, "rowwise": rows.code}[kernel.kind](kernel)
    return Code(with_pieces(code.source), code.phases, code.workspace)


def workspace(kernel: Kernel) -> int:
    """`generate(kernel).workspace` without the text."""
    return 0
