"""The computation of a plan, independent of its execution: a formula for each result, the same for every placement and order.

The formula of a value is a digest of its launch: op, attributes, body, and the formulas of its operands. The formula of a value
from before the step is its role and name, that of a constant its number. Kernel ids, addresses, names of temporaries, and the
order of independent launches are in none of them.
"""

from __future__ import annotations

from hashlib import sha256

from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.dialects.plan.program import find_program
from aicf_mlir.dialects.scalar import bodies_of
from aicf_mlir.ir.layouts import Layout, disjoint
from aicf_mlir.ir.roles import RETURNED_ROLES, UPDATED_ROLES

Formula = str
"""A digest; equal for values that are computed alike."""

BODIES = ("body", "bodies")
"""The attributes that name bodies: the names have no effect on the computation."""

Key = tuple[str, str]
"""Role and name."""


class Formulas:
    """The formulas of a valid plan."""

    def __init__(self, module: ModuleOp):
        program = find_program(module)
        self._bodies = bodies_of(program)
        self._slots = program.slots
        self._memory: dict[str, list[tuple[Layout | None, Formula]]] = {}
        """The writes to each owner of memory: all of it, and then parts."""
        self.launches: dict[str, Formula] = {}
        """The formula of each launch, by symbol and in order."""
        for launch in program.launches:
            self._run(launch)
        self.results: dict[Key, Formula] = {
            (slot.role.data, slot.label.data): self._held(slot)
            for slot in self._slots.values()
            if slot.label is not None and slot.role.data in (*UPDATED_ROLES, *RETURNED_ROLES)
        }
        """The formulas of the step's results, by role and name."""

    def _run(self, launch: LaunchOp) -> None:
        slots, schema, given = self._slots, launch.schema, launch.values
        rows = () if schema is None else schema.attrs
        made = _digest(
            launch.op.data,
            [(row.name, given.get(row.name, row.default)) for row in rows if row.name not in BODIES],
            [self._bodies[symbol] for symbol in launch.bodies],
            launch.counts,
            [(self._held(slots[name]), slots[name].operand_spec) for name in launch.reads],
            [slots[name].operand_spec for name in launch.writes],
            None if launch.predicate_slot is None else self._held(slots[launch.predicate_slot]),
        )
        if launch.scratch is not None:
            self._memory.pop(slots[launch.scratch].root, None)
        for number, slot in enumerate(slots[name] for name in launch.writes):
            self._write(slot, _digest(made, number))
        self.launches[launch.symbol] = made

    def _held(self, slot: SlotOp) -> Formula:
        """The formula of the part of its owner's memory that a slot sees."""
        root = self._slots[slot.root]
        written = [
            (repr(layout), formula)
            for layout, formula in self._memory.get(root.symbol, ())
            if layout is None or slot.layout is None or not disjoint(layout, slot.layout)
        ]
        if root.symbol not in self._memory:
            label, value = root.label, root.value
            name = None if label is None else label.data
            written = [(root.role.data, _digest(name, None if value is None else value.value.data))]
        return _digest(root.spec, slot.layout, sorted(written))

    def _write(self, slot: SlotOp, made: Formula) -> None:
        """Record a write. Parts that have nothing in common are unordered; a part that covers others is ordered after them,
        and so replaces all below it.
        """
        if slot.layout is None:
            self._memory[slot.root] = [(None, made)]
            return
        before = self._memory.get(slot.root, [])
        if any(layout is not None and not disjoint(layout, slot.layout) for layout, _ in before):
            before = [(None, _digest(sorted((repr(layout), formula) for layout, formula in before)))]
        self._memory[slot.root] = [*before, (slot.layout, made)]


def _digest(*what: object) -> Formula:
    return sha256(repr(what).encode()).hexdigest()
