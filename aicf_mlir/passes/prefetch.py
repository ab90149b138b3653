"""Small products read weights, moments and older activations while the launch before them still runs.

In a chain of short launches each waits for the one before, and then for memory. Values that the one before does not write are
there already (`dialects/plan/ahead.py`). So a small product reads such operands before its wait, on GPUs that start a
kernel early.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf_mlir.codegen.cuda.ahead import can_prefetch
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.dialects.plan.ahead import AHEAD, settled
from aicf_mlir.dialects.plan.copies import first_step_only
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.attributes import to_attribute
from aicf_mlir.ir.registry import capability, is_cpu
from aicf_mlir.kernels.schedule_text import divided_id
from aicf_mlir.tuning.lock import Lock

FIRST = 90
"""The compute capability from which on a kernel may be started early."""


def prefetch(program: ProgramOp, lock: Lock | None = None) -> None:
    """Set the operands that each launch of a plan for a GPU reads ahead.

    A launch keeps its schedule, or takes the one of `lock` for the kernel that it has then.
    """
    selection = Selection(program.parent_op(), program.target.data)
    slots, launches = program.slots, program.launches
    alone = first_step_only(launches, slots)
    for number, launch in enumerate(launches):
        if launch.schema is None or all(row.name != AHEAD for row in launch.schema.attrs):
            continue
        kernel = selection.generated(use_of(launch, slots))
        _, schedule = divided_id(launch.kernel_id.data)
        if kernel is None or not (
            ahead := can_prefetch(replace(kernel, schedule=schedule))
            & settled(launches, number, slots, alone)
        ):
            continue
        launch.attrs = DictionaryAttr({**launch.attrs.data, AHEAD: to_attribute(sorted(ahead))})
        use = use_of(launch, slots)
        made = selection.generated(use)
        assert made is not None
        locked = "" if lock is None else lock.kernel(made.symbol)
        kernel_id, _ = selection.select(use, locked or replace(made, schedule=schedule).id)
        launch.kernel_id = StringAttr(kernel_id)


@dataclass(frozen=True)
class PrefetchPass(ModulePass):
    """Let small products read values that are complete by then before their wait for the previous launch.

    Options:
      lock: a file that `aicf-tune` has made, whose schedules the changed launches take if it has them; aicf-opt passes on
        that of select-kernels
    """

    name = "prefetch"

    lock: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        lock = Lock.read(self.lock) if self.lock else None
        for program in op.ops:
            if not isinstance(program, ProgramOp) or is_cpu(target := program.target.data):
                continue
            if capability(target) < FIRST:
                continue
            if program.arenas or program.peak is not None:
                message = (
                    "what is read ahead is chosen before there are addresses; run prefetch before plan-memory"
                )
                program.emit_error(message, PlanError(message))
            prefetch(program, lock)
