"""Products that a library multiplies: its kernels are worth more than an epilogue that they cannot have."""

from __future__ import annotations

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir import registry

NO_EPILOGUE = "a library multiplies it, which has no such epilogue"


class Library:
    """The launches that the library of a target runs; most targets have none."""

    def __init__(self, target: str):
        self.target = target
        self._kernels = {
            kernel["name"]
            for op in ("gemm", "gemm_epilogue")
            for kernel in registry.kernels_of(op)
            if kernel["library"]
        }

    def runs(self, op: KernelOp) -> bool:
        """True if `op` is a product that a kernel of the library runs."""
        if "+" not in self.target or isinstance(op, GeneratedOp):
            return False
        try:
            return registry.select_kernel(op.use, self.target)[0] in self._kernels
        except SelectionError:
            return False

    def keeps(self, product: KernelOp, fused: KernelOp) -> bool:
        """True if `fused` may take the place of `product`; else it is erased. The last epilogues decide it."""
        if not self.runs(product) or self.runs(fused):
            return True
        fused.erase()
        return False
