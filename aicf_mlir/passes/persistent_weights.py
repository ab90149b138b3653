"""What the host alone changes is computed once a call: casts of parameters, which their updates write too, and all that is made
of the batch.

Mixed precision casts each parameter in each step. The result of such a cast becomes a slot of role copy, which lasts from step to
step (`dialects/plan/copies.py`), and the update writes it together with the parameter. This costs 2 bytes an element; the cast
moves 6 and is a launch. That of the first step stays, since the host may have changed anything.

A batch stays while a step is replayed. So its casts, its other layouts, the order of an index and the sums over the edges of a
graph are computed in the first step of a call. They keep memory for themselves, at most twice as much as the batch; what
leads to them alone does not.

A cast of a parameter stays unchanged if something reads it after the update, or if the launch that updates cannot write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan import LaunchOp, ProgramOp, SlotOp
from aicf_mlir.dialects.plan.copies import (
    COPY,
    WITH_ONE_BODY,
    Cast,
    casts_of,
    first_step_only,
    made_of_batch,
    results_of,
    roots,
    writers_and_readers,
)
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.dialects.plan.memory import slot_type
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.roles import CAST_ROLES
from aicf_mlir.kernels.horizontal import members_of, text_of
from aicf_mlir.passes.fuse import drop_unread_bodies
from aicf_mlir.tuning.lock import Lock
from aicf_mlir.tuning.obeyed import text_of as use_text

ROOM = 2
"""How much memory what is made of the batch takes, in batches."""


class Keeper:
    """The copies of one plan without addresses."""

    def __init__(self, program: ProgramOp, lock: Lock | None = None):
        self.program = program
        self.lock = lock
        self.slots = program.slots
        self.launches = program.launches
        self.position = {launch: number for number, launch in enumerate(self.launches)}
        self.selection = Selection(program.parent_op(), program.target.data)
        self.bodies = self.selection.bodies
        self.touching: dict[str, list[LaunchOp]] = {}
        self.writing: dict[str, list[LaunchOp]] = {}
        """For each slot with memory of its own, the launches of the original plan that touch that memory, and the ones that write
        it.
        """
        for launch in self.launches:
            for found, names in ((self.touching, launch.touched), (self.writing, launch.writes)):
                for root in roots(names, self.slots):
                    found.setdefault(root, []).append(launch)

    def run(self) -> None:
        """Give the copies that can be kept their role, and have the updates write them."""
        before = set(self.slots)
        found = {launch: self.lasting(launch) for launch in self.launches}
        by_update: dict[LaunchOp, list[Cast]] = {}
        kept: set[Cast] = set()
        for cast in (cast for casts in found.values() for cast in casts):
            if (update := self.update_of(cast)) is None:
                kept.add(cast)
            else:
                by_update.setdefault(update, []).append(cast)
        for update, casts in by_update.items():
            written = {cast: slot for cast in casts if (slot := self.written_as(update, cast)) is not None}
            if (made := self.with_copies(update, written)) is not None:
                self.put([made], update)
                kept.update(written)
        for launch, casts in found.items():
            if lasting := [cast for cast in casts if cast in kept]:
                self.run_in_first_step_only(launch, lasting)
        used = {name for launch in self.program.launches for name in launch.touched}
        for name, slot in list(self.slots.items()):
            if name not in before and name not in used:  # an alias for an update that was not made
                slot.detach()
                slot.erase()
                del self.slots[name]
        if kept:
            order_launches(self.program.launches, self.slots)
        self.keep_what_the_batch_makes()

    def keep_what_the_batch_makes(self) -> None:
        """Turn what is computed from the batch alone into copies, as long as there is room; the rest takes others with it."""
        own = {name: slot for name, slot in self.slots.items() if slot.alias is None}
        room = ROOM * sum(slot.nbytes for slot in own.values() if slot.role.data == "input")
        written = {name for launch in self.program.launches for name in roots(launch.writes, self.slots)}
        made = {
            name
            for name, slot in own.items()
            if name in written
            if slot.role.data == COPY or (slot.role.data == "temp" and slot.nbytes <= room)
        }
        too_large = True
        while too_large:
            made = made_of_batch(self.program.launches, self.slots, made)
            too_large, size = set[str](), 0
            for name in (name for name in own if name in made and own[name].role.data != COPY):
                if size + own[name].nbytes > room:
                    too_large.add(name)
                else:
                    size += own[name].nbytes
            made -= too_large
        own_or_alias = [slot for slot in self.slots.values() if slot.root in made]
        for slot in own_or_alias:
            slot.role = StringAttr(COPY)
        launches = self.program.launches
        alone = first_step_only(launches, self.slots)
        writers, readers = writers_and_readers(launches, self.slots)
        for slot in own_or_alias:  # what leads to copies only need not last
            later = readers.get(slot.root, [])
            if later and alone.issuperset(later) and len(writers[slot.root]) == 1:
                slot.role = StringAttr("temp")

    def lasting(self, launch: LaunchOp) -> list[Cast]:
        """The casts of `launch` that may last: nothing else writes them, and nothing reads them after the update."""
        casts = casts_of(launch, self.slots, self.bodies) or []
        return [cast for cast in casts if self.may_last(launch, cast)]

    def may_last(self, launch: LaunchOp, cast: Cast) -> bool:
        """True if source and result are memory of their own, in the right order."""
        source, result = self.slots[cast.source], self.slots[cast.result]
        if source.role.data not in CAST_ROLES or result.role.data != "temp":
            return False
        if source.alias is not None or result.alias is not None:
            return False
        updates = self.writing.get(cast.source, [])
        last = self.position[self.touching[cast.result][-1]]
        alone = self.writing[cast.result] == [launch]
        return alone and len(updates) <= 1 and all(self.position[u] > last for u in updates)

    def update_of(self, cast: Cast) -> LaunchOp | None:
        """The launch that updates the source of a cast; None if there is none."""
        return next(iter(self.writing.get(cast.source, [])), None)

    def written_as(self, update: LaunchOp, cast: Cast) -> str | None:
        """The name of the cast's source in `update`, whole but perhaps in another shape; None if it is not one slot."""
        names = [name for name in update.writes if self.slots[name].root == cast.source]
        return names[0] if len(names) == 1 and self.slots[names[0]].layout is None else None

    def with_copies(self, update: LaunchOp, written: Mapping[Cast, str]) -> LaunchOp | None:
        """A launch that does the work of `update` and writes the results of casts, whose sources it names so; None without
        one.
        """
        by_source = {source: self.seen_as(cast.result, source) for cast, source in written.items()}
        if not by_source or len(by_source) < len(written):
            return None
        schema = update.schema
        if schema is not None and any(row.name == COPY for row in schema.outputs):
            return self.of_kernel(update, by_source)
        return self.of_body(update, by_source) if update.op.data in WITH_ONE_BODY else None

    def seen_as(self, copy: str, source: str) -> str:
        """A copy in the shape in which its source is written: itself, or an alias."""
        (element, shape), (_, wanted) = self.slots[copy].spec, self.slots[source].spec
        if shape == wanted:
            return copy
        symbol = next(
            name for name in (f"{copy}_as_{n}" for n in range(len(self.slots))) if name not in self.slots
        )
        owner = self.slots[copy]
        alias = SlotOp(symbol, slot_type(element, wanted), owner.role.data, alias=copy)
        self.program.body.block.insert_op_after(alias, owner)
        self.slots[symbol] = alias
        return symbol

    def of_kernel(self, update: LaunchOp, by_source: Mapping[str, str]) -> LaunchOp | None:
        """The update as a kernel of the runtime, which has a result for the casts."""
        outs, p = {name: list(slots) for name, slots in update.outs.items()}, update.outs["p"]
        if outs.get(COPY) or any(source not in p for source in by_source):
            return None
        copied = [number for number, slot in enumerate(p) if slot in by_source]
        outs[COPY] = [by_source[p[number]] for number in copied]
        values = {**update.values, "copied": copied}
        return self.made(update, update.symbol, update.ins, outs, values)

    def of_body(self, update: LaunchOp, by_source: Mapping[str, str]) -> LaunchOp | None:
        """The update as a generated kernel. Its body gives a result's value once more, rounded; so does each segment."""
        (symbol,) = update.bodies
        body = self.bodies[symbol]
        builder = Builder(body.args)
        value_of = dict(zip(body.results, builder.inline(body, range(len(body.args))), strict=True))
        more = [[(slot, value_of[value]) for slot, value in part] for part in results_of(update, self.bodies)]
        for part in more:
            part += [
                (copy, builder.scalar(value).rounded(self.slots[copy].spec[0]).value)
                for slot, value in part
                if (copy := by_source.get(slot)) is not None
            ]
        values, changed = [[value for _, value in part] for part in more], {**update.values}
        if update.op.data == "multi_tensor_map":
            types = {self.slots[result].spec[0] for result in by_source.values()}
            if any(part != values[0] for part in values) or len(types) > 1:
                return None
            values = values[:1]
        elif update.op.data == "horizontal":
            members = members_of(str(update.values["members"]))
            given = zip(members, more, strict=True)
            changed["members"] = text_of(replace(member, results=len(part)) for member, part in given)
        body = builder.finish(value for part in values for value in part)
        changed["body"] = Symbol(self.bodies.symbol(body, f"{symbol}_copied"))
        outs = {"y": [slot for part in more for slot, _ in part]}
        return self.made(update, update.symbol, update.ins, outs, changed)

    def made(
        self,
        launch: LaunchOp,
        symbol: str,
        ins: Mapping[str, Sequence[str]],
        outs: Mapping[str, Sequence[str]],
        values: Mapping[str, Any],
    ) -> LaunchOp | None:
        """A launch of the op of `launch` with its own kernel; None if that needs other memory, or cannot work in place."""
        schema = launch.schema
        assert schema is not None
        reads = [slot for row in schema.inputs for slot in ins.get(row.name, ())]
        writes = [slot for row in schema.outputs for slot in outs.get(row.name, ())]
        counts = (
            tuple(len(ins.get(row.name, ())) for row in schema.inputs),
            tuple(len(outs.get(row.name, ())) for row in schema.outputs),
        )
        given = counts if launch.counts is not None else None
        new = LaunchOp(
            symbol, "", launch.op.data, reads, writes, values, given, launch.scratch, launch.predicate_slot
        )
        new.location = launch.location
        use = use_of(new, self.slots)
        wanted = "" if self.lock is None else self.lock.kernel(use_text(use))
        kernel_id, workspace = self.selection.select(use, wanted)
        if workspace > (0 if launch.scratch is None else self.slots[launch.scratch].nbytes):
            return None
        allowed = self.selection.in_place(use)  # of another kernel than before
        for output, index in product(range(len(writes)), range(len(reads))):
            same = self.slots[writes[output]].root == self.slots[reads[index]].root
            if same and (output, index) not in allowed:
                return None
        new.kernel_id = StringAttr(kernel_id)
        return new

    def put(self, launches: Sequence[LaunchOp], old: LaunchOp) -> None:
        """Put `launches` in the place of another."""
        block = self.program.body.block
        block.insert_ops_before(launches, old)
        old.detach()
        old.erase()

    def run_in_first_step_only(self, launch: LaunchOp, lasting: Sequence[Cast]) -> None:
        """Turn the results of `lasting` into copies, and leave the other casts of the launch to another one."""
        results = {cast.result for cast in lasting}
        for slot in self.slots.values():
            if slot.root in results:
                slot.role = StringAttr(COPY)
        if len(lasting) == len(launch.writes):
            return
        casts = casts_of(launch, self.slots, self.bodies)
        assert casts is not None
        others = [cast for cast in casts if cast.result not in results]
        taken = {op.symbol for op in self.program.launches}
        symbol = next(
            name for name in (f"k{number}" for number in range(len(taken) + 1)) if name not in taken
        )
        parts: list[LaunchOp] = []
        for name, part in ((launch.symbol, lasting), (symbol, others)):
            ins, outs = [cast.source for cast in part], [cast.result for cast in part]
            values = {**launch.values, "segments": len(part)}
            made = self.made(launch, name, {"x": ins}, {"y": outs}, values)
            assert made is not None  # a map needs no memory to work in
            parts.append(made)
        self.put(parts, launch)


@dataclass(frozen=True)
class PersistentWeightsPass(ModulePass):
    """Cast to f16 and bf16 in the first step of a call only: a batch stays, and updates of parameters write their casts too.

    Options:
      lock: a file that `aicf-tune` has made, whose kernels the changed launches take if it has them; aicf-opt passes on
        that of select-kernels
    """

    name = "persistent-weights"

    lock: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        lock = Lock.read(self.lock) if self.lock else None
        for program in op.ops:
            if not isinstance(program, ProgramOp):
                continue
            if program.arenas or program.peak is not None:
                message = (
                    "copies are chosen before there are addresses; run persistent-weights before plan-memory"
                )
                program.emit_error(message, PlanError(message))
            Keeper(program, lock).run()
        drop_unread_bodies(op)
