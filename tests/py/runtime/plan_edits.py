"""Edits of plans that change how a step is computed, and not what."""

from __future__ import annotations

from contextlib import suppress

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64

from aicf_mlir import AicfError, SelectionError
from aicf_mlir.analysis.placement import aligned
from aicf_mlir.dialects.generated import Selection
from aicf_mlir.dialects.plan import LaunchOp, find_program
from aicf_mlir.dialects.plan.formulas import Formulas
from aicf_mlir.dialects.plan.hazards import order_launches
from aicf_mlir.dialects.plan.kernels import use_of
from aicf_mlir.ir import registry
from aicf_mlir.text.parsing import parse_module


def other_kernels(module: ModuleOp) -> int:
    """Give each launch another kernel of the registry that takes its operands; how many have one."""
    program, count = find_program(module), 0
    selection = Selection(module, program.target.data)
    for launch in (launch for launch in program.launches if not launch.bodies and launch.scratch is None):
        use, own = use_of(launch, program.slots), launch.kernel_id.data
        for row in (row for row in registry.kernels_of(launch.op.data) if row["name"] != own):
            with suppress(SelectionError):
                if not selection.select(use, row["name"])[1]:
                    launch.kernel_id = StringAttr(row["name"])
                    count += 1
                    break
    return count


def other_order(module: ModuleOp) -> int:
    """Exchange neighbours that do not depend on each other, in a plan without addresses; how many there are."""
    program, count = find_program(module), 0
    block, formulas = program.body.block, Formulas(module).results
    exchanged: set[LaunchOp] = set()
    for launch in program.launches:
        following = launch.next_op
        if not isinstance(following, LaunchOp) or launch in exchanged:
            continue
        launch.detach()
        block.insert_op_after(launch, following)
        with suppress(AicfError):
            if Formulas(parse_module(without_order(module))).results == formulas:
                count += 1
                exchanged.add(following)
                continue
        launch.detach()
        block.insert_op_before(launch, following)
    return count


def without_order(module: ModuleOp) -> str:
    """A plan without addresses as text, its `after` written anew."""
    program = find_program(module)
    order_launches(program.launches, program.slots)
    return str(module)


def other_places(module: ModuleOp) -> None:
    """Parameters, states and outputs in the reverse order, behind as much room as they take."""
    program = find_program(module)
    for role in ("param", "state", "output"):
        arena = program.arenas[role]
        slots = {slot.symbol: slot for slot in program.slots.values() if slot.role.data == role}
        end, places = 2 * arena.nbytes, dict[str, int]()
        for slot in slots.values():
            if slot.alias is None:
                end -= aligned(slot.nbytes)
                places[slot.symbol] = end
        for slot in slots.values():
            slot.set_place(role, places[slot.root])
        program.peak = IntegerAttr((program.peak_bytes or 0) + arena.nbytes, i64)
        arena.size = IntegerAttr(2 * arena.nbytes, i64)
