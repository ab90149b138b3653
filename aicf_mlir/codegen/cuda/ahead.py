"""Which operands of a launch generated code can read in front of the wait for the launch before it."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import gemm_maps
from aicf_mlir.kernels.kernel import Kernel
from aicf_mlir.kernels.together import TogetherKernel


def can_read_ahead(kernel: Kernel) -> frozenset[int]:
    """By number; those of small products."""
    if kernel.kind == "gemm_map":
        return gemm_maps.can_read_ahead(kernel)
    if not isinstance(kernel, TogetherKernel):
        return frozenset()
    return frozenset(
        first + number
        for part, (first, _) in zip(kernel.parts, kernel.firsts, strict=True)
        for number in can_read_ahead(part)
    )
