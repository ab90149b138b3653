"""The rules of plans that concern launches: operands, roles, order, and memory that is shared over time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from math import prod
from typing import TYPE_CHECKING, NoReturn

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan.hazards import Range, Reach, hazards, memory_of
from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.liveness import live_ranges
from aicf_mlir.dialects.plan.memory import SlotOp
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.layouts import Layout, WrittenLayouts, disjoint
from aicf_mlir.ir.registry import Use
from aicf_mlir.ir.roles import READ_ONLY_ROLES, RETURNED_ROLES, UNDEFINED_ROLES, UPDATED_ROLES

if TYPE_CHECKING:
    from aicf_mlir.dialects.plan.program import ProgramOp


def refuse(op: Operation, message: str) -> NoReturn:
    """Raise VerifyException at `op`."""
    op.emit_error(message, VerifyException(message))


def check_launches(program: ProgramOp, planned: bool) -> None:
    """Raise VerifyException at the first launch or slot that breaks a rule."""
    launches, slots = program.launches, program.slots
    selection = Selection(program.parent_op(), program.target.data)
    specs = {name: slot.operand_spec for name, slot in slots.items()}
    memory = {name: memory_of(slot) for name, slot in slots.items()}
    for launch in launches:
        check_operands(launch, slots)
        inputs, outputs = [specs[name] for name in launch.reads], [specs[name] for name in launch.writes]
        use = Use.of(launch.op.data, inputs, outputs, launch.values, launch.counts)
        check_kernel(launch, use, slots, selection)
        check_overlap(launch, use, memory, slots, selection)
    check_values(launches, slots)
    check_order(launches, slots)
    if planned:
        check_live(launches, slots)


def check_operands(launch: LaunchOp, slots: Mapping[str, SlotOp]) -> None:
    """Check that every operand is a slot, and every output one that may be written."""
    for name in launch.touched:
        if name not in slots:
            refuse(launch, f"@{launch.symbol} uses @{name}, which is no slot of this plan")
    for name in launch.writes:
        if (role := slots[name].role.data) in READ_ONLY_ROLES:
            refuse(launch, f"@{launch.symbol} writes @{name}; {role} slots are only read")
        if slots[name].layout is not None and role not in UNDEFINED_ROLES:
            refuse(
                launch, f"@{launch.symbol} writes @{name}, a part of a {role} slot; those are written whole"
            )
    if launch.scratch is not None and slots[launch.scratch].role.data != "temp":
        refuse(launch, f"the workspace @{launch.scratch} of @{launch.symbol} must be a temp slot")


def check_kernel(launch: LaunchOp, use: Use, slots: Mapping[str, SlotOp], selection: Selection) -> None:
    """Check that the op accepts its operands, and that the named kernel supports them on the target, in the given workspace."""
    if launch.schema is None:
        known = ", ".join(registry.schemas())
        refuse(launch, f"@{launch.symbol}: there is no op {launch.op.data!r}; known are {known}")
    try:
        registry.check_op(use)
        _, needed = selection.select(use, launch.kernel_id.data)
    except (VerifyError, SelectionError) as error:
        refuse(launch, f"@{launch.symbol}: {error}")
    given = 0 if launch.scratch is None else slots[launch.scratch].nbytes
    if given < needed:
        refuse(
            launch,
            f"@{launch.symbol}: kernel {launch.kernel_id.data!r} needs a workspace of {needed} bytes,"
            f" got {given}",
        )


def check_overlap(
    launch: LaunchOp,
    use: Use,
    memory: Mapping[str, Range],
    slots: Mapping[str, SlotOp],
    selection: Selection,
) -> None:
    """Check that outputs and workspace have no byte in common with anything, except if the op works in place."""
    names = [*launch.writes, *([] if launch.scratch is None else [launch.scratch])]
    written = sorted((memory[name], index) for index, name in enumerate(names))
    interleave = False
    for at, (left, i) in enumerate(written):
        for _, j in takewhile(lambda entry, left=left: left.overlaps(entry[0]), written[at + 1 :]):
            if not _interleave(slots[names[i]], slots[names[j]]):
                refuse(
                    launch, f"@{launch.symbol} writes @{names[i]} and @{names[j]}, which overlap in memory"
                )
            interleave = True
    in_place: frozenset[tuple[int, int]] | None = None
    for index, source in enumerate(launch.reads):
        for output in _overlapping(written, memory[source], interleave):
            target = names[output]
            if _interleave(slots[source], slots[target]):
                continue
            in_place = selection.in_place(use) if in_place is None else in_place
            same = memory[source] == memory[target] and slots[source].layout == slots[target].layout
            if not same or (output, index) not in in_place:
                refuse(
                    launch,
                    f"@{launch.symbol} reads @{source} and writes @{names[output]} in the same memory, which"
                    f" {launch.op.data} cannot do",
                )


def _interleave(left: SlotOp, right: SlotOp) -> bool:
    """True if two slots are parts of one that have no element in common."""
    if left.root != right.root or left.layout is None or right.layout is None:
        return False
    return left.spec[0] == right.spec[0] and disjoint(left.layout, right.layout)


def _overlapping(written: Sequence[tuple[Range, int]], source: Range, interleave: bool) -> Iterator[int]:
    """The outputs that have a byte in common with `source`; `written` is sorted, and disjoint unless some `interleave`."""
    first = bisect_left(written, (source.space, source.begin), key=lambda entry: entry[0][:2])
    for at in range(0 if interleave else max(first - 1, 0), len(written)):
        memory, output = written[at]
        if memory[:2] >= (source.space, source.end):
            return
        if memory.overlaps(source):
            yield output


def check_values(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> None:
    """Check that nothing is read before it is written or after it is lost, results are written, and updates happen once.

    A workspace is garbage when its launch is done. A value of this step is overwritten only by a launch that
    works in place on it, or keeps a copy (copies.py). The memory of one slot may be written part by part.
    """
    writer: dict[str, LaunchOp] = {}
    lost: dict[str, LaunchOp] = {}
    parts: dict[str, WrittenLayouts] = {}
    """The written parts so far of the slots that are written part by part."""
    for launch in launches:
        read = {slots[name].root for name in launch.reads}
        for name in launch.reads:
            slot, root = slots[name], slots[slots[name].root]
            if root.role.data not in UNDEFINED_ROLES:
                continue
            if root.symbol not in writer:
                refuse(launch, f"@{launch.symbol} reads @{name}, which {_not_written(root.symbol, lost)}")
            if root.symbol in parts and not parts[root.symbol].have(_layout(slot), prod(root.spec[1])):
                refuse(launch, f"@{launch.symbol} reads @{name}, of which a part has not been written")
        for name in launch.writes:
            slot, root = slots[name], slots[slots[name].root]
            if slot.layout is not None or root.symbol in parts:
                if root.symbol not in parts:
                    parts[root.symbol] = WrittenLayouts([_layout(root)] if root.symbol in writer else [])
                apart = not parts[root.symbol].meets(_layout(slot))
                parts[root.symbol].add(_layout(slot))
                if apart:
                    writer[root.symbol] = launch
                    continue
            if root.role.data in UPDATED_ROLES and root.symbol in writer:
                first = writer[root.symbol].symbol
                refuse(
                    launch,
                    f"@{launch.symbol} writes @{name}, which @{first} has already updated in this step",
                )
            if root.role.data != "copy" and root.symbol in writer and root.symbol not in read:
                refuse(
                    launch,
                    f"@{launch.symbol} writes @{name}, which holds the result of @{writer[root.symbol].symbol}:"
                    " only a launch that reads it may overwrite it; give the new value a slot of its own",
                )
            writer[root.symbol] = launch
        if launch.scratch is not None:
            root = slots[slots[launch.scratch].root]
            writer.pop(root.symbol, None)
            parts.pop(root.symbol, None)
            lost[root.symbol] = launch
    check_written(launches, slots, writer, parts)


def _layout(slot: SlotOp) -> Layout:
    """The layout of the elements of `slot` in the memory of its owner."""
    return Layout.dense((prod(slot.spec[1]),)) if slot.layout is None else slot.layout


def _not_written(root: str, lost: Mapping[str, LaunchOp]) -> str:
    """The reason why the memory of slot `root` holds no value."""
    return f"is the workspace of @{lost[root].symbol}" if root in lost else "no earlier launch has written"


def check_written(
    launches: Sequence[LaunchOp],
    slots: Mapping[str, SlotOp],
    writer: Mapping[str, LaunchOp],
    parts: Mapping[str, WrittenLayouts],
) -> None:
    """Check that every result has a value in the end, and every temporary a use."""
    used = {slots[name].root for launch in launches for name in launch.touched}
    for slot in slots.values():
        if slot.role.data in RETURNED_ROLES:
            written = parts.get(slot.root)
            if slot.root not in writer:
                refuse(slot, f"no launch writes @{slot.symbol}")
            if written is not None and not written.have(_layout(slot), prod(slots[slot.root].spec[1])):
                refuse(slot, f"no launch writes a part of @{slot.symbol}")
        if slot.role.data == "temp" and slot.root not in used:
            refuse(slot, f"no launch uses @{slot.symbol}; leave it out")


def check_order(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> None:
    """Check that `after` names earlier launches, and orders every pair that touches the same memory."""
    index = {launch.symbol: i for i, launch in enumerate(launches)}
    needed = hazards(launches, slots)
    reach = Reach()
    for i, launch in enumerate(launches):
        for name in launch.waits_for:
            if index.get(name, i) >= i:
                refuse(launch, f"@{launch.symbol} is after @{name}, which is no earlier launch")
        reach.add(index[name] for name in launch.waits_for)
        for early in sorted(needed[i]):
            if (early, i) not in reach:
                refuse(
                    launch,
                    f"@{launch.symbol} must be after @{launches[early].symbol}: they use the same memory, and"
                    " one of them writes it",
                )


def check_live(launches: Sequence[LaunchOp], slots: Mapping[str, SlotOp]) -> None:
    """Check that `live` matches the launches, and that temporaries that are live together have no byte in common."""
    actual = live_ranges(launches, slots)
    owners = [slot for slot in slots.values() if slot.role.data == "temp" and slot.alias is None]
    starting: dict[int, list[SlotOp]] = {}
    ending: dict[int, list[SlotOp]] = {}
    for slot in owners:
        live = actual[slot.symbol]
        if slot.live_range != live:
            got = "none" if slot.live_range is None else f"{slot.live_range[0]}..{slot.live_range[1]}"
            refuse(slot, f"@{slot.symbol} is live {live[0]}..{live[1]}, got {got}")
        if slot.nbytes:
            starting.setdefault(live[0], []).append(slot)
            ending.setdefault(live[1], []).append(slot)
    held: list[tuple[int, int, str]] = []
    """The ranges (begin, end, slot) of all live slots, in the order of the bytes."""
    for i in range(len(launches)):
        for slot in starting.get(i, ()):
            _, begin, end = memory_of(slot)
            at = bisect_left(held, (begin,))
            for other_begin, other_end, other in held[max(at - 1, 0) : at + 1]:
                if begin < other_end and other_begin < end:
                    refuse(slot, f"@{slot.symbol} overlaps @{other} in memory while both are live")
            insort(held, (begin, end, slot.symbol))
        for slot in ending.get(i, ()):
            _, begin, end = memory_of(slot)
            held.remove((begin, end, slot.symbol))
