"""The picture of memory shows each slot that owns memory where and when the plan has it, and so holds plan-memory to its word."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import pytest
import torch
from kernel_programs import random_function
from plans import make_plan
from svg_marks import Shown, panels, shown_slots, texts
from test_plan_memory import layers

from aicf_mlir import compile_train_step
from aicf_mlir.analysis.placement import lower_bound
from aicf_mlir.dialects.plan import ProgramOp
from aicf_mlir.errors import PlanError
from aicf_mlir.ir.roles import ROLES
from aicf_mlir.passes.plan_memory import temporaries
from aicf_mlir.reports.pictures import memory_picture
from aicf_mlir.reports.pictures.memory_map import memory_map
from aicf_mlir.reports.pictures.style import ROLE_COLOURS
from aicf_mlir.reports.pictures.units import byte_ticks, exact_bytes, readable_bytes
from aicf_mlir.text.parsing import make_context, parse_module
from aicf_mlir.tools.runnable import make_planned

ROOT = Path(__file__).parents[3]
STEP = (ROOT / "examples" / "train_step.mlir").read_text()
SOURCES = {
    "train_step": (STEP, "cpu"),
    "train_step sm_90": (STEP, "sm_90"),
    "layers": (layers(24, 64, 64), "cpu"),
}
NAMES = [*SOURCES, *(f"random {seed}" for seed in range(6))]


@cache
def plan_of(name: str) -> ProgramOp:
    if name.startswith("random"):
        return make_plan(random_function(int(name.split()[1]), 40))
    text, target = SOURCES[name]
    context = make_context()
    return make_planned(parse_module(text), context, target)


def shown(program: ProgramOp) -> list[Shown]:
    arenas = {name: arena.nbytes for name, arena in program.arenas.items()}
    return shown_slots(memory_picture(program), len(program.launches), arenas)


def assert_apart(slots: list[Shown]) -> None:
    """No two slots hold a value at one time and have a byte in common."""
    for left, right in itertools.combinations(slots, 2):
        if left.role == right.role and left.first < right.last - 0.5 and right.first < left.last - 0.5:
            assert left.end <= right.begin or right.end <= left.begin, (left, right)


@pytest.mark.parametrize("name", NAMES)
def test_every_slot_that_owns_memory_is_there_once(name: str) -> None:
    program = plan_of(name)
    owners = [symbol for symbol, slot in program.slots.items() if slot.alias is None]
    assert sorted(slot.symbol for slot in shown(program)) == sorted(owners)
    assert len(panels(memory_picture(program))) == len(program.arenas)


@pytest.mark.parametrize("name", NAMES)
def test_no_two_slots_share_a_byte_while_both_hold_a_value(name: str) -> None:
    assert_apart(shown(plan_of(name)))


def test_slots_that_overlap_would_be_found() -> None:
    program = plan_of("train_step").clone()
    program.slots["y"].set_place("temp", 0)
    with pytest.raises(AssertionError):
        assert_apart(shown(program))


@pytest.mark.parametrize("name", NAMES)
def test_a_slot_is_shown_while_launches_use_it(name: str) -> None:
    """Found anew from the launches: a temporary exactly, a result to the end, everything else all the time."""
    program = plan_of(name)
    launches, slots = program.launches, program.slots
    uses = {
        symbol: [
            i for i, launch in enumerate(launches) for used in launch.touched if slots[used].root == symbol
        ]
        for symbol in slots
    }
    for slot in shown(program):
        used = uses[slot.symbol]
        first = min(used) if slot.role in ("temp", "grad", "output") else 0
        last = max(used) + 1 if slot.role == "temp" else len(launches)
        assert (round(slot.first), round(slot.last)) == (first, last), slot


@pytest.mark.parametrize("name", NAMES)
def test_the_peak_is_that_of_the_plan(name: str) -> None:
    program = plan_of(name)
    memory = memory_map(program)
    assert memory.peak == program.peak_bytes
    blocks = temporaries(program)
    assert max(memory.in_use, default=0) == lower_bound(blocks)
    written = " ".join(texts(memory_picture(program)))
    assert f"peak {exact_bytes(memory.peak)} ({readable_bytes(memory.peak)})" in written
    if blocks:
        assert memory.fullest is not None
        launch = memory.launches[memory.fullest]
        mark = (
            f"most in use: {exact_bytes(lower_bound(blocks))} of {exact_bytes(program.arenas['temp'].nbytes)}"
        )
        assert f"{mark}, at @{launch.symbol} {launch.op.data}" in written


def test_the_peak_is_that_of_the_memory_report() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    step = compile_train_step(model, torch.optim.Adam(model.parameters()), B=8, D=16, device="cpu")
    memory = memory_map(parse_module(step.ir("plan")))
    report = step.memory_report()
    assert memory.peak == report.peak
    assert {arena.name: arena.nbytes for arena in memory.arenas} == report.arenas


def test_a_tooltip_says_all_of_a_slot() -> None:
    slots = [mark for _, slots in panels(memory_picture(plan_of("train_step"))) for mark in slots]
    tooltips = {mark.symbol: mark.tooltip.splitlines() for mark in slots}
    assert tooltips["a"][:4] == [
        "@a: f32[32, 48]",
        "temp, offset 0, 6,144 bytes",
        "first launch 0: @k0 gemm_epilogue",
        "last launch 4: @k4 gemm_epilogue",
    ]
    assert tooltips["_0.weight"][2] == 'named "0.weight"'


def test_a_tooltip_names_layers_and_views() -> None:
    text = """
    plan.program @p target "cpu" peak 768 {
      plan.arena @input 256
      plan.arena @temp 256
      plan.arena @output 256
      plan.slot @x in @input[0] : memref<4x2xf32> input "x"
      plan.slot @unread in @input[0] : memref<8xf32> input alias @x
      plan.slot @h in @temp[0] : memref<4x2xf32> temp live 0..1
      plan.slot @h_flat in @temp[0] : memref<8xf32> temp alias @h
      plan.slot @y in @output[0] : memref<8xf32> output "y"
      plan.launch @k0 "relu_cpu" relu x(@x) -> y(@h) loc("head: ReLU"("model.py":12:1))
      plan.launch @k1 "relu_cpu" relu x(@h_flat) -> y(@y) after @k0
    }"""
    picture = memory_picture(parse_module(text))
    (tooltip,) = [m.tooltip for _, slots in panels(picture) for m in slots if m.symbol == "h"]
    assert tooltip.splitlines()[2:] == [
        "first launch 0: @k0 relu",
        "last launch 1: @k1 relu",
        "  model.py:12, layer head: ReLU",
        "seen as @h_flat",
    ]


def test_a_plan_without_launches_is_drawn() -> None:
    text = """
    plan.program @p target "cpu" peak 256 {
      plan.arena @input 256
      plan.slot @x in @input[0] : memref<4xf32> input "x"
    }"""
    picture = memory_picture(parse_module(text))
    assert "no launches" in texts(picture)
    assert [mark.tooltip.splitlines()[-1] for _, slots in panels(picture) for mark in slots] == [
        "no launch touches it"
    ]


def test_a_name_may_hold_any_character() -> None:
    text = """
    plan.program @"<&\\01\\22>" target "cpu" peak 256 {
      plan.arena @input 256
      plan.slot @x in @input[0] : memref<4xf32> input "a<b>&\\22"
    }"""
    picture = memory_picture(parse_module(text))
    assert 'Memory of @<&\ufffd"> for cpu' in texts(picture)
    assert 'named "a<b>&""' in panels(picture)[0][1][0].tooltip


def test_a_plan_without_addresses_is_refused() -> None:
    text = 'plan.program @p target "cpu" {\n  plan.slot @x : memref<4xf32> input "x"\n}'
    with pytest.raises(PlanError, match="@p has no addresses yet: run plan-memory"):
        memory_picture(parse_module(text))


def test_every_role_has_a_colour_of_its_own() -> None:
    assert tuple(ROLE_COLOURS) == ROLES
    assert len(set(ROLE_COLOURS.values())) == len(ROLES)


@pytest.mark.parametrize("size", [256, 8448, 20992, 2**20, 348_388_864])
@pytest.mark.parametrize("most", [1, 4, 12])
def test_ticks_are_exact(size: int, most: int) -> None:
    ticks = byte_ticks(size, most)
    assert ticks[0] == 0
    assert ticks[-1] <= size
    assert len(ticks) - 1 <= most
    assert ticks[1].bit_count() == 1, "a power of two"
    assert all(tick == i * ticks[1] for i, tick in enumerate(ticks))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (14848, "14.5 KiB"), (3 << 40, "3 TiB")],
)
def test_bytes_are_readable(count: int, text: str) -> None:
    assert readable_bytes(count) == text
