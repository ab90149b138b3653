"""Write on every launch the kernel id that runs it on the target, and the workspace that the kernel needs.

The function remembers the target as `aicf.target`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from aicf_mlir.dialects import registry
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.errors import SelectionError, VerifyError

TARGET = "aicf.target"


def select(op: KernelOp, target: str) -> None:
    """Ask the registry for the kernel of `op` on `target`. An id that is already there is kept or refused."""
    wanted = op.kernel_id.data if op.kernel_id is not None else ""
    try:
        kernel_id, workspace = registry.select_kernel(op.use, target, wanted)
    except (SelectionError, VerifyError) as error:
        op.emit_error(f"no kernel for target {target}", error)
    op.kernel_id = StringAttr(kernel_id)
    op.workspace = IntegerAttr(workspace, i64) if workspace else None


@dataclass(frozen=True)
class SelectKernelsPass(ModulePass):
    """Choose a kernel for every launch from the runtime's registry.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"; no such device needs to be present
    """

    name = "select-kernels"

    target: str = "cpu"

    def __post_init__(self) -> None:
        registry.check_target(self.target)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for launch in op.walk():
            if isinstance(launch, FuncOp):
                launch.attributes[TARGET] = StringAttr(self.target)
            elif isinstance(launch, KernelOp):
                select(launch, self.target)
