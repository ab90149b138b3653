"""Write on every launch the kernel id that runs it on the target, and the workspace that the kernel needs.

The function remembers the target as `aicf.target`. In a plan, which has its target itself, launches with an empty id get one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

from aicf_mlir.dialects.generated import GeneratedOp, Selection
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.kernels import name_kernels
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir import registry, remarks
from aicf_mlir.ir.registry import Use
from aicf_mlir.ir.remarks import remark
from aicf_mlir.passes.target import TargetPass
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.obeyed import check_module, text_of

TARGET = "aicf.target"


def kernel_for(op: KernelOp, target: str, wanted: str = "") -> tuple[str, int]:
    """The kernel id of `op` on `target`, and the bytes of workspace that it needs.

    Raises SelectionError with the reason if no kernel, or not the one that is `wanted`, runs the op.
    """
    top = op.get_toplevel_object()
    return Selection(top if isinstance(top, Operation) else None, target).select(op.use, wanted)


def select(op: KernelOp, selection: Selection, locked: str = "") -> None:
    """Choose the kernel of `op`. An id that is already there, or else the `locked` one, is kept or refused."""
    wanted, target = op.kernel_id.data if op.kernel_id is not None else locked, selection.target
    try:
        kernel_id, workspace = selection.select(op.use, wanted)
    except (SelectionError, VerifyError) as error:
        op.emit_error(f"no kernel for target {target}", error)
    if not wanted and remarks.wanted() and not isinstance(op, GeneratedOp):
        for name, reason in declined(op, target, kernel_id):
            remark(op, f"runs {kernel_id}; kernel {name} declined: {reason}")
    op.kernel_id = StringAttr(kernel_id)
    op.workspace = IntegerAttr(workspace, i64) if workspace else None


def declined(op: KernelOp, target: str, chosen: str) -> Iterator[tuple[str, str]]:
    """The kernels that are preferred to `chosen` on its device, each with the reason why it does not run `op`."""
    kernels = registry.kernels_of(op.op_name)
    device = next(kernel["device"] for kernel in kernels if kernel["name"] == chosen)
    for kernel in kernels:
        if kernel["name"] == chosen:
            return
        if kernel["device"] == device:
            try:
                registry.select_kernel(op.use, target, kernel["name"])
            except SelectionError as error:
                yield kernel["name"], reason_of(error, target)
            else:
                yield kernel["name"], registry.preference(op.use, kernel["name"])


def reason_of(error: SelectionError, target: str) -> str:
    """The obstacle to a kernel: the end of the error, which begins with the kernel, the op and the target."""
    return str(error).rpartition(f" on {target}: ")[2]


@dataclass(frozen=True)
class SelectKernelsPass(TargetPass):
    """Choose a kernel for every launch from the runtime's registry.

    Options:
      target: "cpu" (the default), or a compute capability such as "sm_90"; no such device needs to be present
      lock: a file that `aicf-tune` has made, whose kernels are taken; a launch that it does not name is an error
      whole: false if the caller checks the lock after the last pass, as aicf-opt does (tuning/obeyed.py)
    """

    name = "select-kernels"

    lock: str = ""
    whole: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        selection = Selection(op, self.target)
        lock = Lock.read(self.lock) if self.lock else None
        for launch in op.walk():
            if isinstance(launch, FuncOp):
                launch.attributes[TARGET] = StringAttr(self.target)
            elif isinstance(launch, KernelOp):
                select(launch, selection, kernel_of(lock, selection, launch.use))
            elif isinstance(launch, ProgramOp):
                name_kernels(launch, partial(kernel_of, lock))
        if lock is not None and self.whole:
            check_module(op, lock)


def kernel_of(lock: Lock | None, selection: Selection, use: Use) -> str:
    """The kernel that `lock` has for a use; "" for none. LockError for a lock of another target."""
    if lock is None:
        return ""
    lock.check_target(selection.target)
    kernel = selection.generated(use)
    return lock.kernel(text_of(use) if kernel is None else kernel.symbol)
