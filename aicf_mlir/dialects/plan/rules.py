"""The rules of a plan that can run: nothing unbound, out of bounds, overlapping, unordered or wrongly written.

The rules hold for plans of any origin, edited by hand included. Each names the op that breaks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING

from aicf_mlir.dialects.plan.ahead import check_ahead
from aicf_mlir.dialects.plan.branches import check_branches
from aicf_mlir.dialects.plan.collective_rules import check_collectives
from aicf_mlir.dialects.plan.copies import check_copies
from aicf_mlir.dialects.plan.hazards import memory_of
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import check_launches, refuse
from aicf_mlir.dialects.plan.memory import ArenaOp, SlotOp
from aicf_mlir.dialects.plan.status_rules import check_status
from aicf_mlir.errors import VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.layouts import ALIGNMENT
from aicf_mlir.ir.renamed import if_renamed
from aicf_mlir.ir.roles import NAMED_ROLES, ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp


def check_program(program: ProgramOp) -> None:
    """Raise VerifyException at the first op that breaks a rule."""
    check_symbols(program)
    check_target(program)
    arenas, slots = program.arenas, program.slots
    planned = bool(arenas) or program.peak is not None
    for arena in arenas.values():
        check_arena(arena)
    for slot in slots.values():
        check_slot(slot, slots)
        check_place(slot, slots, arenas, planned)
    check_names(slots.values())
    if planned:
        check_peak(program, arenas)
        check_disjoint(slot for slot in slots.values() if slot.role.data != "temp")
    check_launches(program, planned)
    check_copies(program)
    check_ahead(program)
    check_branches(program)
    check_status(program)
    check_collectives(program)


def check_target(program: ProgramOp) -> None:
    """Check that the target is one that kernels are registered for."""
    try:
        registry.check_target(program.target.data)
    except VerifyError as error:
        refuse(program, str(error))


def check_symbols(program: ProgramOp) -> None:
    """Check that there are only arenas, slots and launches, all with names of their own."""
    seen: set[str] = set()
    for op in program.body.block.ops:
        if not isinstance(op, ArenaOp | SlotOp | LaunchOp):
            refuse(op, f"a plan.program holds plan.arena, plan.slot and plan.launch only, got {op.name}")
        if op.symbol in seen:
            refuse(op, f"@{op.symbol} is defined twice; arenas, slots and launches share one set of names")
        seen.add(op.symbol)


def check_names(slots: Iterable[SlotOp]) -> None:
    """Check that no two slots share both role and name, by which the user binds, and that a grad belongs to a param."""
    named: dict[tuple[str, str], SlotOp] = {}
    for slot in slots:
        if slot.label is None:
            continue
        if (key := (slot.role.data, slot.label.data)) in named:
            refuse(slot, f'expected one {key[0]} slot named "{key[1]}", got @{slot.symbol} as a second one')
        named[key] = slot
    for (role, name), slot in named.items():
        if role != "grad":
            continue
        if (param := named.get(("param", name))) is None:
            refuse(slot, f'expected @{slot.symbol} to be named after a param; there is none named "{name}"')
        if param.spec != slot.spec:
            refuse(slot, f"expected @{slot.symbol} to be like its param, {param.type}, got {slot.type}")


def check_arena(arena: ArenaOp) -> None:
    """Check that an arena has a known role and an aligned size."""
    if arena.symbol not in ROLES:
        refuse(
            arena,
            f"an arena is named after a role, one of {', '.join(ROLES)}; got @{arena.symbol}{if_renamed(arena.symbol)}",
        )
    if arena.nbytes < 0 or arena.nbytes % ALIGNMENT:
        refuse(
            arena, f"the size of @{arena.symbol} must be a multiple of {ALIGNMENT} bytes, got {arena.nbytes}"
        )


def check_slot(slot: SlotOp, slots: dict[str, SlotOp]) -> None:
    """Check that the role is known and has its attributes, and that an alias fits its owner."""
    role = slot.role.data
    if role not in ROLES:
        refuse(
            slot,
            f"the role of @{slot.symbol} must be one of {', '.join(ROLES)}; got {role}{if_renamed(role)}",
        )
    if slot.alias is not None:
        check_alias(slot, slots)
        return
    if (slot.value is not None) != (role == "const"):
        refuse(slot, f"a const slot, and no other, has a value: @{slot.symbol} is {role}")
    if (slot.label is not None) != (role in NAMED_ROLES):
        refuse(
            slot, f"slots of {', '.join(NAMED_ROLES)}, and no others, have a name: @{slot.symbol} is {role}"
        )


def check_alias(slot: SlotOp, slots: dict[str, SlotOp]) -> None:
    """Check that the owner exists, owns its memory, and has the same role, element type and size; a layout stays inside."""
    owner = slots.get(slot.root)
    if owner is None:
        refuse(slot, f"@{slot.symbol} is an alias of @{slot.root}, which is no slot of this plan")
    if owner.alias is not None:
        refuse(
            slot, f"@{slot.symbol} must be an alias of @{owner.root}, which owns the memory of @{slot.root}"
        )
    if slot.value is not None or slot.label is not None or slot.live is not None:
        refuse(slot, f"the alias @{slot.symbol} has its name, value and live range from @{slot.root}")
    if (layout := slot.layout) is not None and layout.count and layout.end > prod(owner.spec[1]):
        refuse(
            slot,
            f"expected @{slot.symbol} inside the {prod(owner.spec[1])} elements of @{slot.root}, got {slot.type},"
            f" which ends at {layout.end}",
        )
    size = slot.nbytes if layout is None else owner.nbytes
    expected = (owner.role.data, owner.spec[0], owner.nbytes)
    got = (slot.role.data, slot.spec[0], size)
    if expected != got:
        refuse(
            slot,
            f"the alias @{slot.symbol} must be like its owner @{slot.root}: {expected[0]}, {expected[1]},"
            f" {expected[2]} bytes; got {got[0]}, {got[1]}, {got[2]} bytes",
        )


def check_place(slot: SlotOp, slots: dict[str, SlotOp], arenas: dict[str, ArenaOp], planned: bool) -> None:
    """Check that a slot of a planned program has an aligned place within the arena of its role; an alias has the place of its
    owner.
    """
    if not planned:
        if slot.place is not None:
            refuse(slot, f"@{slot.symbol} has a place, but the program has no arenas")
        return
    if slot.place is None:
        refuse(slot, f"@{slot.symbol} has no place; the arenas show that plan-memory has run")
    arena, offset = slot.place
    if arena != slot.role.data:
        refuse(slot, f"@{slot.symbol} is {slot.role.data} and must be in @{slot.role.data}, got @{arena}")
    if arena not in arenas:
        refuse(slot, f"@{slot.symbol} is in @{arena}, which is no arena of this plan")
    if offset < 0 or offset % ALIGNMENT:
        refuse(slot, f"the offset of @{slot.symbol} must be a multiple of {ALIGNMENT}, got {offset}")
    if offset + slot.extent[1] > arenas[arena].nbytes:
        refuse(
            slot,
            f"@{slot.symbol} ends at byte {offset + slot.extent[1]} of @{arena},"
            f" which has {arenas[arena].nbytes} bytes",
        )
    if slot.alias is not None and slots[slot.root].place != slot.place:
        refuse(slot, f"the alias @{slot.symbol} must be at the place of @{slot.root}")


def check_peak(program: ProgramOp, arenas: dict[str, ArenaOp]) -> None:
    """Check that the peak is the sum of the arenas: all of them exist for the whole step."""
    total = sum(arena.nbytes for arena in arenas.values())
    if program.peak_bytes != total:
        refuse(program, f"the peak must be {total} bytes, the sum of all arenas, got {program.peak_bytes}")


def check_disjoint(slots: Iterable[SlotOp]) -> None:
    """Check that slots that are in use all the time have no byte in common."""
    owners = sorted(
        (slot for slot in slots if slot.alias is None and slot.nbytes), key=lambda slot: memory_of(slot)[:2]
    )
    for left, right in pairwise(owners):
        if memory_of(left).overlaps(memory_of(right)):
            refuse(right, f"@{right.symbol} overlaps @{left.symbol} in memory; both are in use all the time")
