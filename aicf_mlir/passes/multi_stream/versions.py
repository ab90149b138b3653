"""Memory that launches overwrite in place, and the new values that deserve memory of their own.

A launch that overwrites a temporary waits for all that read the old value. If those readers could run in parallel with it, the
new value is worth memory of its own. An example is the product that gives dX: it writes dX over the activation whose sign it
reads, which dW reads too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from aicf_mlir.dialects.plan import ProgramOp, SlotOp
from aicf_mlir.dialects.plan.hazards import Reach
from aicf_mlir.dialects.plan.text import references


@dataclass(frozen=True)
class Overwrite:
    """Launch `launch` writes a new value over the old one of the temporary `owner`."""

    owner: str
    launch: int
    users: tuple[int, ...]
    """The other launches that write or read the old value."""

    def waits_for_nothing_more(self, order: Reach) -> bool:
        """True if all launches that use the old value are complete by then in any case."""
        return all((user, self.launch) in order for user in self.users)


def overwrites(program: ProgramOp) -> list[Overwrite]:
    """The overwrites of temporaries that are written whole; a temporary that is written part by part stays unchanged."""
    slots, launches = program.slots, program.launches
    uses: dict[str, list[int]] = defaultdict(list)
    writers: dict[str, list[int]] = defaultdict(list)
    excluded: set[str] = set()
    for index, launch in enumerate(launches):
        for root in dict.fromkeys(slots[name].root for name in launch.touched):
            uses[root].append(index)
        for name in launch.writes:
            writers[slots[name].root].append(index)
            if slots[name].layout is not None:
                excluded.add(slots[name].root)
        if launch.scratch is not None:
            excluded.add(slots[launch.scratch].root)
    found: list[Overwrite] = []
    for root, numbers in writers.items():
        if slots[root].role.data != "temp" or root in excluded:
            continue
        for first, launch in pairwise(numbers):
            users = (user for user in uses[root] if first <= user < launch)
            found.append(Overwrite(root, launch, tuple(users)))
    return found


def give_memory(program: ProgramOp, some: Collection[Overwrite]) -> None:
    """Replace the temporaries that `some` overwrite by slots of their own, for everything that comes after."""
    wanted = {(each.owner, each.launch) for each in some}
    slots = program.slots
    families: dict[str, list[SlotOp]] = defaultdict(list)
    """The slots of the memory of each owner, itself first."""
    for slot in sorted(slots.values(), key=lambda slot: slot.alias is not None):
        families[slot.root].append(slot)
    last = [*slots.values()][-1:]
    taken = slots.keys() | {launch.symbol for launch in program.launches}
    current: dict[str, dict[str, str]] = {}
    """The current names of each owner's slots."""

    def renamed(names: list[str]) -> list[str]:
        return [current.get(slots[name].root, {}).get(name, name) for name in names]

    for index, launch in enumerate(program.launches):
        written = launch.writes
        launch.inputs = references(renamed(launch.reads))
        for root in dict.fromkeys(slots[name].root for name in written):
            if (root, index) in wanted:
                made = _new_slots(families[root], taken)
                program.body.block.insert_ops_after(made, last[-1])
                last = made
                current[root] = {
                    old.symbol: new.symbol for old, new in zip(families[root], made, strict=True)
                }
                taken |= {slot.symbol for slot in made}
        launch.outputs = references(renamed(written))
    _drop_unused(program)


def _new_slots(family: Sequence[SlotOp], taken: Collection[str]) -> list[SlotOp]:
    """Slots like those of an owner and its aliases, under names that are not taken."""
    number = 1
    while any(f"{slot.symbol}.{number}" in taken for slot in family):
        number += 1
    made: list[SlotOp] = []
    for slot in family:
        new = slot.clone()
        new.sym_name = type(new.sym_name)(f"{slot.symbol}.{number}")
        if slot.alias is not None:
            new.alias = references([f"{slot.root}.{number}"]).data[0]
        made.append(new)
    return made


def _drop_unused(program: ProgramOp) -> None:
    """Take out the aliases of temporaries that no launch uses."""
    used = {name for launch in program.launches for name in launch.touched}
    for slot in program.slots.values():
        if slot.role.data == "temp" and slot.alias is not None and slot.symbol not in used:
            slot.detach()
