"""A check that an external plan may replace a step's own: it must bind, update and check the same.

Everything is bound by role and name, and the order of slots has no meaning. Updates and checks are included because the
surroundings of a step rely on them: counters that are published as optimizer state, numbers of the host that no launch
may write, errors of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.ir import Operation

from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp
from aicf_mlir.ir.registry import TensorSpec, checks
from aicf_mlir.ir.roles import UPDATED_ROLES

Key = tuple[str, str]
"""Role and name."""

Fault = tuple[Operation, str]
"""A mismatch in words, and the op of the plan that shows it."""


def binding_faults(own: ProgramOp, plan: ProgramOp) -> list[Fault]:
    """Return the reasons why `plan` cannot be bound like `own`: missing, extra and differing parts; empty if it can."""
    if plan.target != own.target:
        expected, got = own.target.data, plan.target.data
        return [(plan, f"the plan is for target {got}, the step runs on {expected}")]
    return [*_slots(own, plan), *_updates(own, plan), *_checks(own, plan)]


def _slots(own: ProgramOp, plan: ProgramOp) -> Iterator[Fault]:
    expected, got = _named(own), _named(plan)
    for key, slot in expected.items():
        if key not in got:
            yield plan, f"it lacks {_shown(key)}, {_type(slot.spec)}"
    for key, slot in got.items():
        if key not in expected:
            yield slot, f"it has {_shown(key)}, {_type(slot.spec)}, which the step does not have"
        elif slot.spec != (wanted := expected[key].spec):
            yield slot, f"{_shown(key)}: expected {_type(wanted)}, got {_type(slot.spec)}"


def _updates(own: ProgramOp, plan: ProgramOp) -> Iterator[Fault]:
    expected, got, slots = _updated(own), _updated(plan), _named(plan)
    for key in expected:
        if key in slots and key not in got:
            yield slots[key], f"it does not update {_shown(key)}, which the step updates"
    for key, launch in got.items():
        if key in _named(own) and key not in expected:
            yield launch, f"it updates {_shown(key)}, which the step leaves as it is"


def _checks(own: ProgramOp, plan: ProgramOp) -> Iterator[Fault]:
    expected, got = _checked(own), _checked(plan)
    for check in (check for check in expected if check not in got):
        yield plan, f"it lacks the check {check}"
    for check, launch in got.items():
        if check not in expected:
            yield launch, f"it has the check {check}, which the step does not have"


def _named(program: ProgramOp) -> dict[Key, SlotOp]:
    """Return the slots that a step is bound by."""
    slots = program.slots.values()
    return {(slot.role.data, slot.label.data): slot for slot in slots if slot.label is not None}


def _updated(program: ProgramOp) -> dict[Key, LaunchOp]:
    """Return the values that outlive the step and are written, each with the launch that writes it."""
    slots = program.slots
    return {
        (root.role.data, root.label.data): launch
        for launch in program.launches
        for root in (slots[slots[name].root] for name in launch.writes)
        if root.role.data in UPDATED_ROLES and root.label is not None
    }


def _checked(program: ProgramOp) -> dict[str, LaunchOp]:
    """Return the checks of the step in words: the op, its operand, its attributes."""
    slots = program.slots
    return {
        f"{launch.op.data} of {', '.join(_operand(name, slots) for name in launch.reads)} with "
        + ", ".join(f"{name} = {value}" for name, value in sorted(launch.values.items())): launch
        for launch in program.launches
        if launch.op.data in checks()
    }


def _operand(symbol: str, slots: Mapping[str, SlotOp]) -> str:
    root = slots[slots[symbol].root]
    return f"@{symbol}" if root.label is None else _shown((root.role.data, root.label.data))


def _shown(key: Key) -> str:
    return f"{key[0]} {key[1]!r}"


def _type(spec: TensorSpec) -> str:
    return f"{spec[0]}{list(spec[1])}"
