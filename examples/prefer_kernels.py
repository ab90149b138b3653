"""A pass from outside the tree: kernels of your choice, where they can run the launch.

  aicf-opt examples/mlp.mlir --lower --fuse --load-pass-plugin=examples/prefer_kernels.py \
      --prefer-kernels=kernels=gemm_epilogue_cpu_plain --select-kernels

select-kernels takes the first kernel in the registry's order that supports a launch, and keeps an id that stands
there already. So a pass before it decides for whatever reason it has: a measurement, a table, a suspicion. This one
follows a list of names; `--remarks` says where a kernel of the list could not be taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.registry import kernels_of, schemas
from aicf_mlir.ir.remarks import remark
from aicf_mlir.passes.select_kernels import kernel_for, reason_of


@dataclass(frozen=True)
class PreferKernelsPass(ModulePass):
    """Give every launch the first of some kernels that runs it, and leave the others to select-kernels.

    Options:
      kernels: kernel ids, the preferred first
      target: as of select-kernels
    """

    name = "prefer-kernels"

    kernels: tuple[str, ...]
    target: str = "cpu"

    def __post_init__(self) -> None:
        known = {kernel["name"] for op_name in schemas() for kernel in kernels_of(op_name)}
        if unknown := [name for name in self.kernels if name not in known]:
            raise ValueError(f"no kernel is called {unknown[0]!r}")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for launch in op.walk():
            if isinstance(launch, KernelOp) and launch.kernel_id is None:
                self.prefer(launch)

    def prefer(self, launch: KernelOp) -> None:
        """Write the id of the first kernel of the list that runs `launch`."""
        own = {kernel["name"] for kernel in kernels_of(launch.op_name)}
        for name in self.kernels:
            if name not in own:
                continue
            try:
                kernel_for(launch, self.target, name)
            except SelectionError as error:
                remark(launch, f"does not run {name}: {reason_of(error, self.target)}")
                continue
            launch.kernel_id = StringAttr(name)
            return
