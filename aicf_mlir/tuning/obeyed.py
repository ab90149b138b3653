"""Whether a finished plan runs what a lock says: `aicf-tune` reads plans, and passes behind select-kernels change launches.

An update writes casts too (keep-copies), a product reads ahead (read-ahead): that is another use, or another generated kernel,
than select-kernels has seen.
"""

from __future__ import annotations

from aicf_mlir.dialects.plan import LaunchOp, ProgramOp
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.errors import SelectionError
from aicf_mlir.ir.registry import Use, schemas
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.uses import text_of


def prebuilt_uses(program: ProgramOp) -> dict[LaunchOp, Use]:
    """What `program` asks of the kernels of the registry, launch by launch."""
    slots, known = program.slots, schemas()
    return {
        launch: use_of(launch, slots) for launch in program.launches if not known[launch.op.data].generated
    }


def check_obeyed(program: ProgramOp, lock: Lock) -> None:
    """LockError for a launch that `lock` does not name, SelectionError for one with another kernel than it says."""
    uses = {launch: text_of(use) for launch, use in prebuilt_uses(program).items()}
    generated = [launch for launch in program.launches if launch not in uses]
    lock.check_whole(uses.values(), (launch.kernel_id.data for launch in generated))
    for launch, use in uses.items():
        if (wanted := lock.rows[use].kernel) != (taken := launch.kernel_id.data):
            raise SelectionError(f"launch @{launch.symbol} of {use} runs {taken} and not {wanted}")
