"""The rules of plans that concern a status: a step whose checks fail changes nothing that outlives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.ir.registry import checks
from aicf_mlir.ir.roles import KEPT_ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

STATUS_SPEC = ("i64", (3,))


def check_status(program: ProgramOp) -> None:
    """Raise VerifyException at the first launch or slot that breaks a rule."""
    slots = program.slots
    statuses = [slot for slot in slots.values() if slot.role.data == "status"]
    for slot in statuses:
        if slot.spec != STATUS_SPEC:
            refuse(slot, f"a status is of type memref<3xi64>, got {slot.type}")
    if len(statuses) > 1:
        refuse(statuses[1], f"expected one status, got @{statuses[1].symbol} beside @{statuses[0].symbol}")
    status = statuses[0].symbol if statuses else None
    for launch in program.launches:
        check_launch(launch, slots, status)
    if status is not None:
        check_time(program, status)


def check_launch(launch: LaunchOp, slots: Mapping[str, SlotOp], status: str | None) -> None:
    """Check that a predicate is the status; a launch has it exactly if it writes memory that outlives the step."""
    if launch.predicate_slot is not None and (status is None or launch.predicate_slot != status):
        wanted = "no status in this plan" if status is None else f"the status @{status}"
        refuse(launch, f"@{launch.symbol} is skipped by @{launch.predicate_slot}; there is {wanted}")
    if any(slots[name].role.data == "status" for name in launch.writes) and launch.op.data not in checks():
        refuse(launch, f"@{launch.symbol} writes a status; only {', '.join(checks())} tell the host of it")
    kept = [name for name in launch.writes if slots[name].role.data in KEPT_ROLES]
    other = [name for name in launch.writes if name not in kept and slots[name].role.data != "copy"]
    if launch.predicate_slot is not None and other:
        refuse(
            launch,
            f"@{launch.symbol} may be skipped, which would leave @{other[0]} without a value; only"
            f" {', '.join(KEPT_ROLES)} slots keep their old one",
        )
    if launch.predicate_slot is None and status is not None and kept:
        refuse(
            launch,
            f"@{launch.symbol} writes @{kept[0]}; expected `predicate not @{status}`: the checks may fail",
        )


def check_time(program: ProgramOp, status: str) -> None:
    """Check that nothing is skipped or updated before the status of this step is known."""
    launches = program.launches
    writers = [i for i, launch in enumerate(launches) if status in launch.writes]
    for launch in launches[: writers[-1] if writers else 0]:
        if launch.predicate_slot is not None:
            refuse(
                launch,
                f"@{launch.symbol} comes before @{launches[writers[-1]].symbol}, which computes @{status}",
            )
