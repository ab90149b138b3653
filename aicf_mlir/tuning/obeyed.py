"""Whether launches run what a lock says: `aicf-tune` reads plans, and passes behind select-kernels change launches.

An update writes casts too (keep-copies), a product reads ahead (read-ahead): that is another use, or another generated kernel,
than select-kernels has seen.
"""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.errors import LockError, SelectionError
from aicf_mlir.ir.registry import Use, schemas
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.uses import text_of


def prebuilt_uses(program: ProgramOp) -> dict[LaunchOp, Use]:
    """What `program` asks of the kernels of the registry, launch by launch."""
    slots, known = program.slots, schemas()
    return {
        launch: use_of(launch, slots) for launch in program.launches if not known[launch.op.data].generated
    }


def check_module(module: ModuleOp, lock: Lock) -> None:
    """LockError for a launch that `lock` does not name, SelectionError for one with another kernel than it says.

    The launches are those of plans and, above plan level, the ops with a kernel id; without one nothing is run yet.
    """
    found: list[LaunchOp | KernelOp] = []
    uses: dict[LaunchOp | KernelOp, str] = {}
    for each in module.walk():  # no `op`: an error that is of none would be shown at it
        if isinstance(each, ProgramOp):
            lock.check_target(each.target.data)
            found += each.launches
            uses |= {launch: text_of(use) for launch, use in prebuilt_uses(each).items()}
        elif isinstance(each, KernelOp) and each.kernel_id is not None:
            found.append(each)
            if not isinstance(each, GeneratedOp):
                uses[each] = text_of(each.use)
    try:
        lock.check_whole(uses.values(), (_kernel(launch) for launch in found if launch not in uses))
    except LockError as error:
        if any(isinstance(launch, KernelOp) for launch in found):
            error.add_note(
                "above plan level, where later passes still change launches: a lock is made of finished plans"
            )
        raise
    for launch, use in uses.items():
        if (wanted := lock.rows[use].kernel) != (taken := _kernel(launch)):
            name = f"launch @{launch.symbol} of {use}" if isinstance(launch, LaunchOp) else use
            message = f"{name} runs {taken} and not {wanted}"
            launch.emit_error(message, SelectionError(message))


def _kernel(launch: LaunchOp | KernelOp) -> str:
    return "" if launch.kernel_id is None else launch.kernel_id.data
