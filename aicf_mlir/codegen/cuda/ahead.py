"""Operands of a launch that generated code can read before the wait for the launch before it."""

from __future__ import annotations

from aicf_mlir.codegen.cuda import gemm_maps
from aicf_mlir.kernels.horizontal import HorizontalKernel
from aicf_mlir.kernels.kernel import Kernel


def can_prefetch(kernel: Kernel) -> frozenset[int]:
    """The numbers of the operands that can be prefetched: those of small products."""
    if kernel.kind == "gemm_map":
        return gemm_maps.can_prefetch(kernel)
    if not isinstance(kernel, HorizontalKernel):
        return frozenset()
    return frozenset(
        first + number
        for part, (first, _) in zip(kernel.parts, kernel.firsts, strict=True)
        for number in can_prefetch(part)
    )
