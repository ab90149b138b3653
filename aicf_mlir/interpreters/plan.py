"""A plan, run by the meaning of its launches on NumPy views of its arenas: offsets and aliases count."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from aicf_mlir.dialects.plan import ProgramOp, SlotOp, find_program
from aicf_mlir.dialects.scalar import bodies_of
from aicf_mlir.errors import PlanError
from aicf_mlir.interpreters.arithmetic import ROUNDED, Arithmetic
from aicf_mlir.interpreters.kernel import meaning
from aicf_mlir.interpreters.numerics import NUMPY_TYPES, Array, places, round_to, widen
from aicf_mlir.ir.layouts import Layout


def view(slot: SlotOp, arenas: Mapping[str, bytearray]) -> Array:
    """The tensor of `slot`, sharing the memory of its arena."""
    if slot.place is None:
        raise PlanError(f"@{slot.symbol} has no address; run plan-memory first")
    arena, offset = slot.place
    element, shape = slot.spec
    if not math.prod(shape):
        return np.empty(shape, NUMPY_TYPES[element])
    layout = Layout.dense(shape) if slot.layout is None else slot.layout
    return places(np.frombuffer(arenas[arena], NUMPY_TYPES[element], layout.end, offset), layout)


def run_plan(plan: ModuleOp | ProgramOp, arenas: Mapping[str, bytearray]) -> None:
    """Run one step of `plan` in `arenas`, by name, in place. Constants are written first.

    Raises PlanError for a module without exactly one program, a plan without addresses, and an arena that is
    missing or too small.
    """
    program = find_program(plan)
    for name, arena in program.arenas.items():
        if len(arenas.get(name, b"")) < arena.nbytes:
            raise PlanError(f"arena {name!r} needs {arena.nbytes} bytes, got {len(arenas.get(name, b''))}")
    slots, bodies = program.slots, bodies_of(program)
    tensors = {symbol: view(slot, arenas) for symbol, slot in slots.items()}
    for symbol, slot in slots.items():
        if slot.value is not None:
            tensors[symbol][...] = round_to(np.asarray(slot.value.value.data), slot.spec[0])
    for launch in program.launches:
        if launch.predicate_slot is not None and tensors[launch.predicate_slot].flat[0] != 0:
            continue
        inputs = [tensors[name] for name in launch.reads]
        output_types = [slots[name].spec for name in launch.writes]
        given = [bodies[symbol] for symbol in launch.bodies]
        results = meaning(
            launch.op.data, inputs, launch.values, output_types, counts=launch.counts, bodies=given
        )
        for name, result in zip(launch.writes, results, strict=True):
            tensors[name][...] = result


def evaluate_plan(
    plan: ModuleOp | ProgramOp, values: Mapping[str, Array], arithmetic: Arithmetic = ROUNDED
) -> dict[str, Array]:
    """One step of `plan` without its memory: the values of all slots afterwards, by symbol of their owner.

    `values` holds the arguments by symbol, and the values that an earlier step left. In a plan that verifies, the arenas of
    `run_plan` hold the same bits in every slot that still has a value.
    """
    program = find_program(plan)
    slots, bodies = program.slots, bodies_of(program)
    held = {symbol: arithmetic.round(widen(value), slots[symbol].spec[0]) for symbol, value in values.items()}
    for symbol, slot in slots.items():
        if slot.value is not None:
            constant = round_to(np.asarray(slot.value.value.data), slot.spec[0])
            held[symbol] = arithmetic.round(widen(np.full(slot.spec[1], constant)), slot.spec[0])
    for launch in program.launches:
        if launch.predicate_slot is not None and held[launch.predicate_slot].flat[0] != 0:
            continue
        inputs = [_seen(held[slots[name].root], slots[name]) for name in launch.reads]
        output_types = [slots[name].spec for name in launch.writes]
        given = [bodies[symbol] for symbol in launch.bodies]
        results = meaning(
            launch.op.data, inputs, launch.values, output_types, arithmetic, launch.counts, given
        )
        for name, result in zip(launch.writes, results, strict=True):
            root = slots[slots[name].root]
            if slots[name].layout is None:
                held[root.symbol] = result.reshape(root.spec[1])
            elif result.size:
                block = held.get(root.symbol, np.empty(root.spec[1], result.dtype)).copy()
                _seen(block, slots[name])[...] = result
                held[root.symbol] = block
    return held


def _seen(value: Array, slot: SlotOp) -> Array:
    """The part of `value`, the value of the owner, that `slot` names."""
    if slot.layout is None or not slot.layout.count:
        return value.reshape(slot.spec[1])
    return places(value.reshape(-1), slot.layout)
