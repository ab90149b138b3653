"""Slots of role copy: what lasts from step to step, of parameters in the narrow type that a step computes with, and of the batch.

A cast fills the slot of a parameter, and the launch that updates it writes the new value there as well, rounded alike. A batch
stays while a step is replayed, and so does all that is computed from it alone: a cast, the order of an index, the degrees of a
graph. So a launch of copies alone runs in the first step of a replay only, since the host may have changed the sources by then.
A temporary on the way from the batch to a copy, which no other launch reads, is made in that step only, too.
An executor that runs every launch in every step computes the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from aicf_mlir.dialects.plan.collective_rules import COLLECTIVES
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.launch_rules import refuse
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.dialects.scalar import Bodies, bodies_of
from aicf_mlir.ir.body import Body
from aicf_mlir.ir.element_types import NARROW
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.roles import CAST_ROLES, READ_ONLY_ROLES
from aicf_mlir.kernels.horizontal import members_of

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp

COPY = "copy"
"""The role."""

WITH_ONE_BODY = ("map", "multi_tensor_map", "gemm_map", "horizontal")
"""Generated launches whose results are values of one body, applied to each part alike or to one part after the other."""


class Cast(NamedTuple):
    """The slots of a cast: its source, and its result in another type."""

    source: str
    result: str


def casts_of(launch: LaunchOp, slots: Mapping[str, SlotOp], bodies: Bodies) -> list[Cast] | None:
    """The casts of `launch` from f32 to f16 or bf16, tensor by tensor; None for one that does anything else."""
    pairs = list(zip(launch.reads, launch.writes, strict=False))
    if len(launch.reads) != len(launch.writes) or not pairs or launch.predicate_slot is not None:
        return None
    for source, result in pairs:
        (element, shape), (narrow, other) = slots[source].spec, slots[result].spec
        dense = slots[source].layout is None and slots[result].layout is None
        if element != "f32" or narrow not in NARROW or prod(shape) != prod(other) or not dense:
            return None
    if launch.op.data in ("map", "multi_tensor_map"):
        (body,) = launch.bodies
        if not all(is_cast(bodies[body], slots[result].spec[0]) for _, result in pairs):
            return None
    elif launch.op.data != "copy":
        return None
    return [Cast(*pair) for pair in pairs]


def is_cast(body: Body, narrow: str) -> bool:
    """True if a body only rounds to `narrow`, as writing its result does."""
    if body.args != ("f32",) or body.results != (len(body.lines),):
        return False
    return all(
        line.args == (number,) and (line.op, line.type) in (("arith.truncf", narrow), ("arith.extf", "f32"))
        for number, line in enumerate(body.lines)
    )


def twins_of(launch: LaunchOp, slots: Mapping[str, SlotOp], bodies: Bodies) -> set[Cast]:
    """The pairs of slots that a launch writes and in which one gets the rounding, to f16 or bf16, of the other's f32."""
    if "copied" in launch.values and launch.outs.get(COPY):
        copied, p = launch.values["copied"], launch.outs["p"]
        assert isinstance(copied, Sequence)
        given = zip(launch.outs[COPY], copied, strict=True)
        return {Cast(p[number], slot) for slot, number in given if isinstance(number, int)}
    parts = results_of(launch, bodies)
    if not parts:
        return set()
    (symbol,) = launch.bodies
    body = bodies[symbol]
    builder = Builder(body.args)
    value_of = dict(zip(body.results, builder.inline(body, range(len(body.args))), strict=True))
    casts: set[Cast] = set()
    for part in parts:
        wide = [
            (slot, builder.scalar(value_of[value])) for slot, value in part if _element(slots, slot) == "f32"
        ]
        for slot, value in part:
            if (element := _element(slots, slot)) in NARROW:
                casts.update(
                    Cast(own, slot) for own, x in wide if x.rounded(element).value == value_of[value]
                )
    return casts


def results_of(launch: LaunchOp, bodies: Bodies) -> list[list[tuple[str, int]]]:
    """The slots that each part of a generated launch writes, with the values of its body; none of another launch."""
    if launch.op.data not in WITH_ONE_BODY:
        return []
    (symbol,) = launch.bodies
    values, writes = bodies[symbol].results, launch.writes
    if launch.op.data == "multi_tensor_map":
        counts = [len(values)] * (len(writes) // max(len(values), 1))
        values *= len(counts)
    elif launch.op.data == "horizontal":
        counts = [member.results for member in members_of(str(launch.values["members"]))]
    else:
        counts = [len(values)]
    pairs = iter(list(zip(writes, values, strict=True)))
    return [list(islice(pairs, count)) for count in counts]


def made_of_batch(
    launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp], candidates: Collection[str]
) -> set[str]:
    """Those of `candidates`, which own memory, that are the same in each step while the batch stays.

    All launches that write one read the batch, constants and others of them, and write no other memory. What else reads it comes
    after them, since later steps find the last value only.
    """
    made = set(candidates)
    while True:
        lost, read = set[str](), set[str]()
        for launch in launches:
            everything = roots(launch.writes, slots)
            lasts = all(name in made or slots[name].role.data == COPY for name in everything)
            for reads, writes in _parts_of(launch):
                own, written = roots(reads, slots), roots(writes, slots)
                if not lasts or not written <= made or not _reads_batch_alone(launch, slots, own, made):
                    lost |= written & made
                    read |= own
                lost |= written & read
        if not lost & made:
            return made
        made -= lost


def _parts_of(launch: LaunchOp) -> list[tuple[Sequence[str], Sequence[str]]]:
    """What a launch reads and writes, of one on many tensors tensor by tensor."""
    reads, writes = launch.reads, launch.writes
    if launch.op.data == "multi_tensor_map" and launch.values["segments"] == len(reads) == len(writes):
        return [((read,), (write,)) for read, write in zip(reads, writes, strict=True)]
    return [(reads, writes)]


def _reads_batch_alone(
    launch: LaunchOp, slots: Mapping[str, SlotOp], own: Collection[str], made: Collection[str]
) -> bool:
    """True if what `launch` makes of `own` depends on the batch, constants and slots of `made` alone, and on no other rank."""
    if launch.predicate_slot is not None or launch.op.data in COLLECTIVES:
        return False
    given = {name for name in own if name in made or slots[name].role.data == "input"}
    return bool(given) and all(name in given or slots[name].role.data in READ_ONLY_ROLES for name in own)


def writers_and_readers(
    launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]
) -> tuple[dict[str, list[LaunchOp]], dict[str, list[LaunchOp]]]:
    """The launches that write each slot with memory of its own, or an alias of it, and those that read it."""
    writers, readers = dict[str, list[LaunchOp]](), dict[str, list[LaunchOp]]()
    for launch in launches:
        for found, names in ((writers, launch.writes), (readers, launch.reads)):
            for root in roots(names, slots):
                found.setdefault(root, []).append(launch)
    return writers, readers


def first_step_only(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> set[LaunchOp]:
    """The launches that a replay runs in its first step only: they write copies, and temporaries that only they read."""
    writers, readers = writers_and_readers(launches, slots)
    alone = set[LaunchOp]()

    def is_on_the_way(root: str, launch: LaunchOp) -> bool:
        later = readers.get(root, [])
        return (
            slots[root].role.data == "temp"
            and writers[root] == [launch]
            and bool(later)
            and alone.issuperset(later)
        )

    for launch in reversed(launches):  # readers come after the one launch that writes
        written = roots(launch.writes, slots)
        others = [root for root in written if slots[root].role.data != COPY]
        if others and (launch.predicate_slot is not None or launch.op.data in COLLECTIVES):
            continue
        if written and all(is_on_the_way(root, launch) for root in others):
            alone.add(launch)
    return alone


def check_copies(program: ProgramOp) -> None:
    """Raise VerifyException at the first slot of role copy that is neither made of the batch alone nor a cast, kept current by
    the launches that update its source.
    """
    slots, launches = program.slots, program.launches
    copies = [slot for slot in slots.values() if slot.role.data == COPY and slot.alias is None]
    bodies = bodies_of(program) if copies else None
    twins: dict[LaunchOp, set[Cast]] = {}
    writers_of: dict[str, list[LaunchOp]] = {}
    for launch in launches if copies else ():
        for root in roots(launch.writes, slots):
            writers_of.setdefault(root, []).append(launch)
    alone = first_step_only(launches, slots) if copies else set[LaunchOp]()
    of_batch = (
        made_of_batch(launches, slots, {root for launch in alone for root in roots(launch.writes, slots)})
        if copies
        else ()
    )
    for slot in copies:
        assert bodies is not None
        if not (writers := writers_of.get(slot.symbol)):
            refuse(slot, f"no launch writes @{slot.symbol}")
        first, *later = writers
        if slot.symbol in of_batch:
            continue
        made = dict(_reversed(casts_of(first, slots, bodies) or []))
        source = made.get(slot.symbol)
        if source is None or first not in alone or slots[source].role.data not in CAST_ROLES:
            refuse(
                first,
                f"@{first.symbol} writes @{slot.symbol}: expected a launch that casts {' or '.join(CAST_ROLES)} slots to"
                f" slots of role {COPY} and does nothing else, or one that reads input slots and what is made of them",
            )
        updates = writers_of.get(slots[source].root, [])
        for launch in updates:
            if launch not in twins:
                pairs = twins_of(launch, slots, bodies)
                twins[launch] = {Cast(slots[own].root, slots[copy].root) for own, copy in pairs}
            if Cast(slots[source].root, slot.symbol) not in twins[launch]:
                refuse(
                    launch,
                    f"@{launch.symbol} writes @{source}: expected the same value, rounded, in its {COPY} @{slot.symbol}",
                )
        for launch in later:
            if launch not in updates:
                refuse(
                    launch,
                    f"@{launch.symbol} writes @{slot.symbol}, the {COPY} of @{source}, which it does not update",
                )


def roots(names: Sequence[str], slots: Mapping[str, SlotOp]) -> set[str]:
    """The owners of the memory of some slots."""
    return {slots[name].root for name in names}


def _element(slots: Mapping[str, SlotOp], name: str) -> str:
    return slots[name].spec[0]


def _reversed(casts: Sequence[Cast]) -> list[tuple[str, str]]:
    return [(result, source) for source, result in casts]
